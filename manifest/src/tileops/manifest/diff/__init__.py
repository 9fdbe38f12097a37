"""What two versions of the manifest differ in, and what that means for a caller."""

from tileops.manifest.diff.change import Change, Level
from tileops.manifest.diff.entry import compare_entries
from tileops.manifest.diff.manifest import Difference, compare, required_version

__all__ = ["Change", "Difference", "Level", "compare", "compare_entries", "required_version"]
