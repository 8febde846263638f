package audit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// definition returns a CustomResourceDefinition whose objects may have any fields.
func definition(group, version, kind, plural, scope string) string {
	return fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[4]s.%[1]s}
spec:
  group: %[1]s
  scope: %[5]s
  names: {kind: %[3]s, plural: %[4]s}
  versions: [{name: %[2]s, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
`, group, version, kind, plural, scope)
}

// TestConvert converts the policies of a real cluster, which lacks some of the kinds.
func TestConvert(t *testing.T) {
	c := cluster.New(t, cluster.Options{})
	apply(t, c, definition("kyverno.io", "v1", "ClusterPolicy", "clusterpolicies", "Cluster")+
		definition("templates.gatekeeper.sh", "v1", "ConstraintTemplate", "constrainttemplates", "Cluster")+
		definition("constraints.gatekeeper.sh", "v1beta1", "Named", "named", "Cluster"))
	const objects = `apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: keys}
spec:
  rules:
    - {name: has-a, match: {any: [{resources: {kinds: [ConfigMap]}}]}, validate: {message: a is missing, pattern: {data: {a: "?*"}}}}
    - {name: signed, match: {any: [{resources: {kinds: [Pod]}}]}, verifyImages: [{}]}
---
apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: named}
spec:
  crd: {spec: {names: {kind: Named}}}
  targets: [{code: [{engine: K8sNativeValidation, source: {validations: [{expression: "variables.anyObject.metadata.name != variables.params.not", message: wrong}]}}]}]
---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: Named
metadata: {name: none}
spec: {match: {kinds: [{apiGroups: [""], kinds: [ConfigMap]}]}, parameters: {not: x}}
`
	support.Eventually(t, "the definitions are served", func() error {
		text, err := kubectl(t, c, objects, "apply", "-f", "-")
		if err != nil {
			err = fmt.Errorf("%w: %s", err, text)
		}
		return err
	})
	code, out, report := program(t, "convert", "--kubeconfig", kubeconfig(t, c.Config()))
	for _, want := range []string{"kind: ValidatingAdmissionPolicy\nmetadata:\n  name: keys\n", "resources:\n      - configmaps", "kind: Named", "3 converted, 0 with differences, 1 not; 0 other documents"} {
		if code != 1 || !strings.Contains(out+report, want) {
			t.Errorf("exit code %d, no %q in\n%s\n%s", code, want, out, report)
		}
	}
}
