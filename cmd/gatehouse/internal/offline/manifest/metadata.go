package manifest

import (
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// stringMaps returns the members of metadata that map strings to strings.
func stringMaps() []string { return []string{"annotations", "labels"} }

// Errors returns what keeps the object from being judged as it is written: its document cannot be read, or labels or annotations
// of a pod or namespace are not strings. The API server takes nothing else, and a look-up would take another value for none.
func (o *Object) Errors() diagnostic.List {
	if o.Unreadable != nil {
		return diagnostic.List{*o.Unreadable}
	}
	metadata := o.pod.Get("metadata")
	if o.isNamespace() {
		metadata = o.value.Get("metadata")
	}
	var (
		all     diagnostic.List
		checker strict.Checker
	)
	for _, name := range stringMaps() {
		field := o.Field("metadata." + name)
		value, err := metadata.Get(name).Decode()
		list := diagnostic.List{{Severity: diagnostic.Error, Field: field}}
		if err != nil {
			list[0].Message = err.Error()
		} else {
			list = checker.Compare(reflect.TypeFor[map[string]string](), value, field, strict.Options{Secret: name == "annotations"})
		}
		for _, f := range list {
			f.Source, f.Object = o.Source, o.Title()
			all = append(all, f)
		}
	}
	return all
}

// Misplaced warns about labels and annotations on the object that are meant for its pod, by their names, and have no effect there.
func (o *Object) Misplaced(meant func(name string) bool) diagnostic.List {
	if o.NoPod != "" {
		return nil
	}
	var found diagnostic.List
	owner, path := o.value, ""
	for _, step := range steps(o.pointer) {
		for _, kind := range stringMaps() {
			for name := range owner.Get("metadata", kind).Members() {
				if text := name.Text(); meant(text) {
					found = append(found, diagnostic.Diagnostic{
						Severity: diagnostic.Warning, Source: o.Source, Object: o.Title(),
						Message: fmt.Sprintf("%smetadata.%s[%s] has no effect on a %s", path, kind, printable(text), printable(o.Kind)),
						Hint:    "move it to " + o.Template + ".metadata.annotations",
					})
				}
			}
		}
		owner, path = owner.Get(step), path+step+"."
	}
	return found
}

func (o *Object) isNamespace() bool { return o.apiVersion == "v1" && o.Kind == "Namespace" }

// AsNamespace returns the object as the namespace that will be created, and false for anything else.
func (o *Object) AsNamespace() (*corev1.Namespace, bool) {
	if !o.isNamespace() || o.Name == "" || len(o.Errors()) > 0 {
		return nil, false
	}
	texts := func(name string) map[string]string {
		all := make(map[string]string)
		for key, value := range o.value.Get("metadata", name).Members() {
			all[key.Text()] = value.Text()
		}
		return all
	}
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Name, Labels: texts("labels"), Annotations: texts("annotations")}}
	n.Labels[corev1.LabelMetadataName] = n.Name // as the API server sets it
	return n, true
}
