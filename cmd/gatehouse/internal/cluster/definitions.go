package cluster

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/builtin"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
)

// definitionKind is the kind of CustomResourceDefinitions, whose schemas mutating policies need.
var definitionKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"} //nolint:gochecknoglobals // a constant

// addDefinitions adds the CustomResourceDefinitions of the kinds that a mutating policy matches, by name: all of them only for a
// wildcard.
func (n *WatchTargets) addDefinitions(match *admissionregistrationv1.MatchResources) {
	if match == nil {
		return
	}
	for i := range match.ResourceRules {
		rule := &match.ResourceRules[i]
		for _, group := range rule.APIGroups {
			if group != "*" && builtin.Scheme().IsGroupRegistered(group) {
				continue
			}
			for _, resource := range rule.Resources {
				plural, _, _ := strings.Cut(resource, "/")
				name := plural + "." + group
				if strings.Contains(name, "*") {
					name = ""
				}
				n.Targets = append(n.Targets, Target{Kind: definitionKind, Name: name})
			}
		}
	}
}

// definitions are the schemas of custom resources by the CustomResourceDefinitions of the cluster, and of kinds that these do not
// have, by others.
type definitions struct {
	followers []*follower
	others    mutation.Schemas
}

var _ mutation.Schemas = (*definitions)(nil)

// of returns the schemas that have a kind.
func (d *definitions) of(kind schema.GroupVersionKind) mutation.Schemas {
	for _, f := range d.followers {
		objects, _ := f.list()
		for _, item := range objects {
			if one, ok := item.(*param); ok && one.kinds != nil && one.kinds.Has(kind) {
				return one.kinds
			}
		}
	}
	return d.others
}

// TypeConverter returns what merges objects of a kind, and nil if there is no schema.
func (d *definitions) TypeConverter(kind schema.GroupVersionKind) managedfields.TypeConverter {
	return d.of(kind).TypeConverter(kind)
}

// Default fills in the defaults of an object, in place.
func (d *definitions) Default(object *unstructured.Unstructured) {
	d.of(object.GroupVersionKind()).Default(object)
}

// Err returns why the schema of a kind is not known. The error may be that definitions have not been read.
func (d *definitions) Err(kind schema.GroupVersionKind) error {
	of := d.of(kind)
	if err := of.Err(kind); err != nil || of.TypeConverter(kind) != nil {
		return err
	}
	return missing(d.followers)
}

// withoutDescriptions removes the descriptions of a schema, which are most of its text.
func withoutDescriptions(value any) {
	switch value := value.(type) {
	case map[string]any:
		if _, text := value["description"].(string); text {
			delete(value, "description")
		}
		for _, one := range value {
			withoutDescriptions(one)
		}
	case []any:
		for _, one := range value {
			withoutDescriptions(one)
		}
	}
}
