package sidecar

import (
	"crypto/sha256"
	"encoding/binary"
)

// isInRollout reports whether a workload is in the share of a rollout. It depends on names
// alone, so that every replica, a dry run and an offline run agree. A workload that is in
// at one percentage is in at every higher one. The name of the profile is part of the
// hash, so that different rollouts begin with different workloads.
func isInRollout(profile, namespace, workload string, percent int32) bool {
	sum := sha256.Sum256([]byte(profile + "\x00" + namespace + "\x00" + workload))
	const all = 100
	return binary.BigEndian.Uint64(sum[:])%all < uint64(max(percent, 0)) // #nosec G115 -- not negative
}
