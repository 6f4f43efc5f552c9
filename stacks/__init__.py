"""The stack definition: *load* → *validate* → *resolve*; what comes out, `components` declares."""
