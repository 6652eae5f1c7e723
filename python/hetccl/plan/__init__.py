"""Plans for people: the steps of each rank in a collective, as text and as SVG."""
