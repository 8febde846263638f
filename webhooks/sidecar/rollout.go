package sidecar

import (
	"crypto/sha256"
	"encoding/binary"
)

// isInRollout reports whether a workload is in the share of a rollout. It depends on
// the names alone, so that every replica, a dry run and an offline run agree;
// workloads that are in at one percentage are in at every higher one; and the
// name of the profile is among them, so that different rollouts do not meet
// the same workloads first.
func isInRollout(profile, namespace, workload string, percent int32) bool {
	sum := sha256.Sum256([]byte(profile + "\x00" + namespace + "\x00" + workload))
	const all = 100
	return binary.BigEndian.Uint64(sum[:])%all < uint64(max(percent, 0)) // #nosec G115 -- not negative
}
