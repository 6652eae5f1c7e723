"""Plans for people: what each rank does in a collective, as text and as SVG."""
