"""The program of short tables, where what takes time is what comes before the first store."""
