"""``tileops bench``: what the ops' workloads cost, beside the card's limits and beside others.

Nothing is timed whose result is wrong. What runs in other processes (:mod:`.timers`,
:mod:`.peer_process`) needs torch and no TileOPs, because a peer may own the same import name.
"""
