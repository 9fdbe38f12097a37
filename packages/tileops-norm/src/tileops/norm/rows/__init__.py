"""What the ops that normalize rows of a contiguous [M, n] share: call spec, programs, kernels."""
