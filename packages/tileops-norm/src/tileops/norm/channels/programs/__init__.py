"""The channel norms' TileLang programs."""
