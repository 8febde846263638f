// Package workload knows which kinds have a pod template, where it is in the object, and what pod the controller makes
// from it.
package workload

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// Kind is a kind of objects that hold a pod template: an object with metadata
// and spec of which a controller makes pods. All versions of the group count.
type Kind struct {
	// Group is the API group, without a version. That of a ReplicationController
	// and a PodTemplate is empty.
	Group string
	// Kind is the kind as manifests write it, such as "Rollout".
	Kind string
	// Resource is the plural in lower case, such as "rollouts". Of a custom kind
	// it may be empty, and is not known then.
	Resource string
	// Template is the path of the pod template, one name of a member a step.
	Template []string
}

// FromAPI returns the kinds that a PolicyConfiguration lists, as they are written
// there. New checks them.
func FromAPI(list []v1alpha1.WorkloadKind) []Kind {
	kinds := make([]Kind, 0, len(list))
	for _, k := range list {
		kinds = append(kinds, Kind{Group: k.Group, Kind: k.Kind, Resource: k.Resource, Template: strings.Split(k.Template, ".")})
	}
	return kinds
}

// Kinds are the kinds that hold a pod template. They never change and are safe
// for concurrent use.
type Kinds struct {
	all   []Kind // by group and kind
	paths map[schema.GroupKind][]string
}

// New returns the kinds of Kubernetes itself and custom ones.
//
// The error is what Check finds. The Kinds are nil then.
func New(custom []Kind) (*Kinds, error) {
	if found := Check(custom); len(found) > 0 {
		return nil, found.ToAggregate()
	}
	k := &Kinds{all: builtIn()}
	for _, c := range custom {
		c.Template = slices.Clone(c.Template)
		k.all = append(k.all, c)
	}
	slices.SortFunc(k.all, func(a, b Kind) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind))
	})
	k.paths = make(map[schema.GroupKind][]string, len(k.all))
	for _, c := range k.all {
		k.paths[c.groupKind()] = c.Template
	}
	return k, nil
}

// Template returns the path of the pod template in an object of that kind, for any
// version of the group, and false for a kind that is not known to hold one. A Pod
// is none: it is what others hold a template of. The path is not to be changed.
func (k *Kinds) Template(group, kind string) (path []string, ok bool) {
	path, ok = k.paths[schema.GroupKind{Group: group, Kind: kind}]
	return path, ok
}

// All returns the kinds by group and kind. What it returns is the caller's own, but
// for the templates' paths, which are not to be changed.
func (k *Kinds) All() []Kind { return slices.Clone(k.all) }

// builtIn returns the kinds of Kubernetes itself. None of their groups' versions has
// had the pod elsewhere.
func builtIn() []Kind {
	template := []string{"spec", "template"}
	return []Kind{
		{Kind: "PodTemplate", Resource: "podtemplates", Template: []string{"template"}},
		{Kind: "ReplicationController", Resource: "replicationcontrollers", Template: template},
		{Group: "apps", Kind: "DaemonSet", Resource: "daemonsets", Template: template},
		{Group: "apps", Kind: "Deployment", Resource: "deployments", Template: template},
		{Group: "apps", Kind: "ReplicaSet", Resource: "replicasets", Template: template},
		{Group: "apps", Kind: "StatefulSet", Resource: "statefulsets", Template: template},
		{Group: "batch", Kind: "CronJob", Resource: "cronjobs", Template: []string{"spec", "jobTemplate", "spec", "template"}},
		{Group: "batch", Kind: "Job", Resource: "jobs", Template: template},
		{Group: "extensions", Kind: "DaemonSet", Resource: "daemonsets", Template: template},
		{Group: "extensions", Kind: "Deployment", Resource: "deployments", Template: template},
		{Group: "extensions", Kind: "ReplicaSet", Resource: "replicasets", Template: template},
	}
}

func (k *Kind) groupKind() schema.GroupKind { return schema.GroupKind{Group: k.Group, Kind: k.Kind} }

func (k *Kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}
