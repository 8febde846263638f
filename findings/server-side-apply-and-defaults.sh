#!/bin/sh
# server-side-apply-and-defaults.sh: server-side apply of the same manifest by two managers conflicts where an atomic list has defaults.
#
#	sh findings/server-side-apply-and-defaults.sh
#
# A webhook's rules are an atomic list. What is applied has no `scope`, what is stored has its default, and the comparison is by the whole list: a second manager that applies the very same
# manifest gets a conflict, as when a release moves from one tool to another. With the default written out there is none. If somebody else applies it written out, the first manager's own
# unchanged manifest conflicts from then on. Lists by key take defaults into account, so that ports of a Service do not conflict. The field manager and the schemas are the API server's own; the two defaults are set by hand.
# It needs Go and its module proxy. It ends with 1 if this changes.
set -eu
behaviour=$(sed -n '/^#\t/,/^# It needs/{/^#\t/d;/^# It needs/d;s/^# //p;}' "$0")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'EOF'
package main

import (
	"fmt"
	"os"

	registration "k8s.io/api/admissionregistration/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

const webhook = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: webhook}
webhooks:
- name: a.example.org
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]%s}]
`

const service = `
apiVersion: v1
kind: Service
metadata: {name: service}
spec: {ports: [{port: 443}]}
`

func main() {
	implicit, explicit := fmt.Sprintf(webhook, ""), fmt.Sprintf(webhook, `, scope: "*"`)
	changed := false
	for _, c := range []struct {
		name    string
		applied [][2]string // manager and manifest
		want    bool        // a conflict in the last one
	}{
		{"a webhook's rule without scope, by two managers", [][2]string{{"one", implicit}, {"two", implicit}}, true},
		{"the same rule with the default written out, by two managers", [][2]string{{"one", explicit}, {"two", explicit}}, false},
		{"without scope, then with the default by another manager", [][2]string{{"one", implicit}, {"two", explicit}}, false},
		{"and the first manager again, with what it applied before", [][2]string{{"one", implicit}, {"two", explicit}, {"one", implicit}}, true},
		{"a Service's port without protocol, by two managers", [][2]string{{"one", service}, {"two", service}}, false},
	} {
		var live runtime.Object
		var err error
		for _, a := range c.applied {
			live, err = apply(live, a[0], a[1])
		}
		fmt.Printf("%s: conflict %t\n", c.name, err != nil)
		if err != nil {
			fmt.Println("   ", err)
		}
		changed = changed || (err != nil) != c.want
	}
	if changed {
		fmt.Println("this has changed")
		os.Exit(1)
	}
}

// apply applies a manifest as the API server does, without force.
func apply(live runtime.Object, manager, manifest string) (runtime.Object, error) {
	applied := map[string]any{}
	check(yaml.Unmarshal([]byte(manifest), &applied))
	object := &unstructured.Unstructured{Object: applied}
	kind := object.GetObjectKind().GroupVersionKind()
	if live == nil {
		empty, err := scheme.Scheme.New(kind)
		check(err)
		empty.GetObjectKind().SetGroupVersionKind(kind)
		live = empty
	}
	fields, err := managedfields.NewDefaultFieldManager(applyconfigurations.NewTypeConverter(scheme.Scheme), scheme.Scheme, defaulter{}, scheme.Scheme, kind, kind.GroupVersion(), "", nil)
	check(err)
	return fields.Apply(live, object, manager, false)
}

// defaulter sets the defaults of the API server that this needs.
type defaulter struct{}

func (defaulter) Default(object runtime.Object) {
	switch o := object.(type) {
	case *registration.ValidatingWebhookConfiguration:
		all := registration.AllScopes
		for i := range o.Webhooks {
			for j := range o.Webhooks[i].Rules {
				if o.Webhooks[i].Rules[j].Scope == nil {
					o.Webhooks[i].Rules[j].Scope = &all
				}
			}
		}
	case *core.Service:
		for i := range o.Spec.Ports {
			if o.Spec.Ports[i].Protocol == "" {
				o.Spec.Ports[i].Protocol = core.ProtocolTCP
			}
		}
	}
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
	k8s.io/api v0.37.2
	k8s.io/apimachinery v0.37.2
	k8s.io/client-go v0.37.2
	sigs.k8s.io/yaml v1.6.0
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: k8s.io/api v0.37.2, k8s.io/apimachinery v0.37.2, k8s.io/client-go v0.37.2, sigs.k8s.io/yaml v1.6.0"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
