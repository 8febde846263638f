#!/bin/sh
# custom-resource-versions-in-admission.sh: what a webhook or policy for one version of a custom resource sees of an object sent in another.
#
#	sh findings/custom-resource-versions-in-admission.sh
#
# With matchPolicy Equivalent and `conversion.strategy: None`, which is the default, only apiVersion changes, in object and oldObject. Nothing is pruned, no default of that version is set, and its schema is not applied, so that an
# expression that counts on the version's defaults or bounds meets objects that could not be created in it. On a cluster a patch of a webhook that adds a field which only its version knows
# is visible to the validating webhooks behind it, and then dropped before the object is stored.
# It needs Go and its module proxy. It ends with 1 if this changes.
set -eu
behaviour=$(sed -n '/^#\t/,/^# It needs/{/^#\t/d;/^# It needs/d;s/^# //p;}' "$0")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'EOF'
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"
)

const definition = `
metadata: {name: gadgets.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {plural: gadgets, kind: Gadget}
  conversion: {strategy: None}
  versions:
  - name: v1beta1
    served: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, required: [mode], properties: {mode: {type: string, default: plain}, size: {type: integer, maximum: 5}}}}}}
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {style: {type: string}, size: {type: integer}}}}}}
`

const sent = `{"apiVersion":"example.org/v1","kind":"Gadget","metadata":{"name":"gadget","namespace":"default"},"spec":{"size":100,"style":"x"}}`

const want = `{"apiVersion":"example.org/v1beta1","kind":"Gadget","metadata":{"name":"gadget","namespace":"default"},"spec":{"size":100,"style":"x"}}`

func main() {
	var crd apiextensionsv1.CustomResourceDefinition
	check(yaml.UnmarshalStrict([]byte(definition), &crd))
	factory, err := conversion.NewCRConverterFactory(nil, nil)
	check(err)
	converter, _, err := factory.NewConverter(&crd)
	check(err)
	object, old := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	check(json.Unmarshal([]byte(sent), object))
	check(json.Unmarshal([]byte(sent), old))
	kind := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gadget"}
	attributes := admission.NewAttributesRecord(object, old, kind, "default", "gadget", kind.GroupVersion().WithResource("gadgets"), "",
		admission.Update, &metav1.UpdateOptions{}, false, &user.DefaultInfo{Name: "somebody"})

	// This is what the API server does for a webhook or a policy whose rules name v1beta1.
	versioned, err := admission.NewVersionedAttributes(attributes, kind.GroupKind().WithVersion("v1beta1"), interfaces{converter: converter})
	check(err)
	got := asJSON(versioned.VersionedObject.Object())
	fmt.Println("sent:     ", sent)
	fmt.Println("object:   ", got)
	fmt.Println("oldObject:", asJSON(versioned.VersionedOldObject.Object()))

	var internal apiextensions.CustomResourceValidation
	check(apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(crd.Spec.Versions[0].Schema, &internal, nil))
	validator, _, err := validation.NewSchemaValidator(internal.OpenAPIV3Schema)
	check(err)
	errs := validation.ValidateCustomResource(nil, versioned.VersionedObject.Object().(*unstructured.Unstructured).Object, validator)
	fmt.Println("by the schema of v1beta1:")
	for _, err := range errs {
		fmt.Println("   ", err)
	}
	if got != want || asJSON(versioned.VersionedOldObject.Object()) != want || len(errs) != 2 {
		fmt.Println("this has changed")
		os.Exit(1)
	}
}

// interfaces has what the conversion for admission needs.
type interfaces struct {
	admission.ObjectInterfaces
	converter runtime.ObjectConvertor
}

func (i interfaces) GetObjectConvertor() runtime.ObjectConvertor { return i.converter }

func (interfaces) GetObjectCreater() runtime.ObjectCreater { return creater{} }

type creater struct{}

func (creater) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u, nil
}

func asJSON(object runtime.Object) string {
	content, err := json.Marshal(object)
	check(err)
	return string(content)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
EOF
cat >go.mod <<'EOF'
module finding

go 1.26

require (
	k8s.io/apiextensions-apiserver v0.37.2
	k8s.io/apimachinery v0.37.2
	k8s.io/apiserver v0.37.2
	sigs.k8s.io/yaml v1.6.0
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: k8s.io/apiextensions-apiserver v0.37.2, k8s.io/apimachinery v0.37.2, k8s.io/apiserver v0.37.2, sigs.k8s.io/yaml v1.6.0"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
