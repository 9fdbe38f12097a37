"""The checks of an entry, by level: schema, then meaning."""
