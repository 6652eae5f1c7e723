"""Topologies for people: read from files, made without a cluster, shown as text and as SVG."""
