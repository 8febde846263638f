package podtext

import "strings"

// WorkloadName returns the name of the workload that owns the pod, without what
// controllers append: the hash of a ReplicaSet, and the time of a CronJob's Job.
func (p *Pod) WorkloadName() string {
	for _, owner := range p.owners.Elements() {
		if !owner.Get("controller").IsTrue() {
			continue
		}
		name := owner.Get("name").Text()
		for _, label := range [...]string{"pod-template-hash", "rollouts-pod-template-hash"} {
			if hash := p.Labels.Get(label).Text(); hash != "" {
				name = strings.TrimSuffix(name, "-"+hash)
			}
		}
		if owner.Get("kind").Is("Job") {
			name = CronJobName(name)
		}
		return name
	}
	if name := p.generateName.Text(); name != "" {
		return strings.TrimSuffix(name, "-")
	}
	return p.name.Text()
}

// CronJobName returns the name of a Job without the time, in minutes since 1970, that a
// CronJob puts behind its own: k8s.io/kubernetes/pkg/controller/cronjob.
func CronJobName(name string) string {
	const digits = 8
	i := strings.LastIndexByte(name, '-')
	if i < 0 || len(name)-i-1 < digits || strings.Trim(name[i+1:], "0123456789") != "" {
		return name
	}
	return name[:i]
}
