package tc

// Exported for tests only.
func BucketShown(bps, n int64) (int64, int64) { return bucketShown(bps, n) }
func ShownBurst(bps, n int64) int64           { return shownBurst(bps, n) }
func BucketArg(bps, shown int64) int64        { return bucketArg(bps, shown) }
func CodelKernel(us int64) int64              { return codelKernel(us) }
func CodelArg(us string) string               { return codelArg(us) }
