"""The sinusoidal table's TileLang programs: ``any_size``, and ``short`` ones for small tables."""
