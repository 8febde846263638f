package sidecar

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
)

// inShare tells whether a workload is in the share of a rollout. It depends on
// the names alone, so that every replica, a dry run and an offline run agree;
// workloads that are in at one percentage are in at every higher one; and the
// name of the profile is among them, so that different rollouts do not meet
// the same workloads first.
func inShare(profile, namespace, workload string, percent int32) bool {
	sum := sha256.Sum256([]byte(profile + "\x00" + namespace + "\x00" + workload))
	const all = 100
	return binary.BigEndian.Uint64(sum[:])%all < uint64(max(percent, 0)) // #nosec G115 -- not negative
}

// workload is the name of what a pod belongs to. The names that controllers
// make up for what stands in between are left out: the hash of a ReplicaSet, and
// the time of a CronJob's Job.
func (p *pod) workload() string {
	for _, owner := range p.owners.Elements() {
		if !owner.Get("controller").IsTrue() {
			continue
		}
		name := owner.Get("name").Text()
		for _, label := range [...]string{"pod-template-hash", "rollouts-pod-template-hash"} {
			if hash := p.labels.Get(label).Text(); hash != "" {
				name = strings.TrimSuffix(name, "-"+hash)
			}
		}
		if owner.Get("kind").Is("Job") {
			name = jobOwner(name)
		}
		return name
	}
	if name := p.generateName.Text(); name != "" {
		return strings.TrimSuffix(name, "-")
	}
	return p.name.Text()
}

// jobOwner is the name of a Job without the time, in minutes since 1970, that a
// CronJob puts behind its own: k8s.io/kubernetes/pkg/controller/cronjob.
func jobOwner(name string) string {
	const digits = 8
	i := strings.LastIndexByte(name, '-')
	if i < 0 || len(name)-i-1 < digits || strings.Trim(name[i+1:], "0123456789") != "" {
		return name
	}
	return name[:i]
}
