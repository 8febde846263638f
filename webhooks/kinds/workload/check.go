package workload

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// Check returns everything that is wrong with custom kinds, in their order, at the paths that a PolicyConfiguration gives them.
func Check(custom []Kind) field.ErrorList {
	var all field.ErrorList
	const builtin, twice = "is built in", "is given twice"
	kinds, resources := make(map[schema.GroupKind]string), make(map[schema.GroupResource]string)
	for _, k := range builtIn() {
		kinds[k.groupKind()], resources[k.groupResource()] = builtin, builtin
	}
	for i := range custom {
		k, path := &custom[i], field.NewPath("workloads").Index(i)
		kind, resource := k.groupKind(), k.groupResource()
		found := k.check(path)
		switch {
		case len(found) > 0:
			all = append(all, found...)
		case kinds[kind] != "":
			all = append(all, field.Invalid(path, k.Kind, kind.String()+" "+kinds[kind]))
		case k.Resource != "" && resources[resource] != "":
			all = append(all, field.Invalid(path.Child("resource"), k.Resource, resource.String()+" "+resources[resource]))
		default:
			kinds[kind], resources[resource] = twice, twice
		}
	}
	return all
}

func (k *Kind) check(path *field.Path) field.ErrorList {
	var found field.ErrorList
	report := func(child, value, reason string) {
		const most = 100 // characters of what is shown
		value = strict.Cut(value, most)
		found = append(found, field.Invalid(path.Child(child), value, strconv.Quote(value)+" "+reason))
	}
	if k.Kind == "" || k.Kind[0] < 'A' || k.Kind[0] > 'Z' {
		report("kind", k.Kind, "does not begin with a capital letter: write the kind as manifests do, such as Rollout")
	}
	if len(validation.IsDNS1123Subdomain(k.Group)) > 0 {
		report("group", k.Group, "is not an API group without a version, such as argoproj.io")
	}
	if k.Resource != "" && len(validation.IsDNS1035Label(k.Resource)) > 0 {
		report("resource", k.Resource, "is not a resource: write the plural of the kind in lower case, such as rollouts")
	}
	template, last := strings.Join(k.Template, "."), len(k.Template)-1
	switch {
	case template == "" || slices.ContainsFunc(k.Template, badStep):
		report("template", template, "is not the path of a pod template: write field names separated by dots, without lists")
	case last > 0 && k.Template[last] == "spec":
		report("template", template, "ends in spec: it must name the whole pod template, with its metadata")
	}
	return found
}

func badStep(step string) bool { return step == "" || strings.ContainsAny(step, "[]./ \t") }
