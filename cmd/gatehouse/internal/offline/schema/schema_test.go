package schema_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sschema "k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/schema"
	"github.com/gatehouse-dev/gatehouse/manifests/crds"
)

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [size]
            x-kubernetes-validations:
            - {rule: 'self.size <= self.most', message: size must be at most most}
            properties:
              size: {type: integer, minimum: 1}
              most: {type: integer, default: 10}
              color: {type: string, enum: [red, blue]}
              template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
              env: {type: array, items: {type: object, properties: {name: {type: string}, value: {type: string}}}}
              parts:
                type: array
                x-kubernetes-list-type: set
                items: {type: string}
`

func decode(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	var u unstructured.Unstructured
	asJSON, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = u.UnmarshalJSON(asJSON)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &u
}

// TestSecretsAreNotShown puts a secret into every field that people use for one.
func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	const secret = "481516"
	schemas := schema.New([]*unstructured.Unstructured{decode(t, widgets)})
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a, image: b, "
	for _, object := range []string{
		"apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: '481516!'}",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: 481516}",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: '481516'",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {'a.b': 481516}",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: '481516'",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: s}\ndata: {a: 481516}",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: s}\nbinaryData: {a: '481516!'}",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: s, annotations: {'bad key!': '481516'}}",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: s, annotations: {a: 481516}}",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: s, annotations: '481516'}",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: s}\nspec: {template: {metadata: {annotations: {a: 481516}}}}",
		pod + "env: [{name: a, value: 481516}]}]}",
		pod + "env: ['a=481516']}]}",
		pod + "env: 'a=481516'}]}",
		pod + "args: [-p, 481516]}]}",
		pod + "command: 'run -p 481516'}]}",
		pod + "livenessProbe: {httpGet: {port: 80, httpHeaders: [{name: Authorization, value: 481516}]}}}]}",
		"apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w, annotations: {a: 481516}}\nspec: {size: 1}",
		"apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 1, env: [{name: a, value: {b: '481516'}}]}",
	} {
		o := decode(t, object)
		found, _, err := schemas.Check(t.Context(), o.GroupVersionKind(), o.Object, nil)
		if err != nil || len(found) == 0 || strings.Contains(found.Error(), secret) {
			t.Errorf("%s\n%v, %v", object, found, err)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	definitions, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	schemas := schema.New(append(definitions, decode(t, widgets), decode(t, strings.NewReplacer("openAPIV3Schema", "none", "Widget", "Gadget", "widgets", "gadgets").Replace(widgets))))
	const head = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"
	for _, test := range []struct {
		name, object string
		want         []string
	}{
		{"good pod", head + "spec: {containers: [{name: a, image: b, ports: [{containerPort: 80, name: http}]}]}", nil},
		{"unknown field", head + "spec: {contaners: [{name: a}]}", []string{`spec.containers: at least one is required`, `spec.contaners: unknown field (hint: did you mean "containers"?)`}},
		{
			"everything at once", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: A_b, labels: {'a b': c}}\n" +
				"spec: {replicas: \"x\", template: {spec: {containers: [{name: A_b, image: a, ports: [{containerPort: 99999}]}]}}}", []string{
				`metadata.labels[a b]: the key is invalid: name part must consist of alphanumeric characters`,
				`spec.replicas: "x" is a string, expected an integer`,
				`spec.template.spec.containers[0].name: "A_b": a lowercase RFC 1123 label must consist of`,
				`spec.template.spec.containers[0].ports[0].containerPort: "99999": must be between 1 and 65535`,
			},
		},
		{"restart policy", head + "spec: {restartPolicy: never, containers: [{name: a, image: b}]}", []string{`spec.restartPolicy: "never" is invalid: must be "Always", "Never" or "OnFailure" (hint: did you mean "Never"?)`}},
		{"hostPort 0", head + "spec: {containers: [{name: a, image: a, ports: [{containerPort: 1, hostPort: 0}]}]}", nil},
		{"quotes", head + "spec: {hostNetwork: \"true\", terminationGracePeriodSeconds: \"5\", containers: [{name: a, image: a, livenessProbe: {httpGet: {port: \"13133\"}}}]}", []string{
			`spec.containers[0].livenessProbe.httpGet.port: "13133" is a name, and the name of a port has a letter (hint: remove the quotes)`,
			`spec.hostNetwork: "true" is a string, expected true or false (hint: remove the quotes)`,
			`spec.terminationGracePeriodSeconds: "5" is a string, expected an integer (hint: remove the quotes)`,
		}},
		{"twice", head + "spec: {containers: [{name: a, image: b}, {name: a, image: b}], volumes: [{name: v}, {name: v}]}", []string{
			`spec.containers[1].name: "a" is given twice, first in spec.containers[0]`, `spec.volumes[1].name: "v" is given twice, first in spec.volumes[0]`,
		}},
		{"twice by two keys", "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{name: a, port: 80}, {name: b, port: 80, protocol: UDP}, {name: c, port: 80}]}", []string{
			`spec.ports[2].port: "80" is given twice, first in spec.ports[0]`,
		}},
		{"twice, where that is allowed", head + "spec: {containers: [{name: a, image: b, env: [{name: A}, {name: A}], ports: [{containerPort: 80}, {containerPort: 80}]}]}", nil},
		{"quantity", head + "spec: {containers: [{name: a, image: a, resources: {limits: {cpu: many}}}]}", []string{`spec.containers[0].resources.limits.cpu: "many" is invalid: must be a quantity`}},
		{"annotation that is no string", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, annotations: {a: 1}}", []string{`metadata.annotations.a: the value is a number, expected a string`}},
		{"label value", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, labels: {ok: a b}}", []string{
			`metadata.labels.ok: "a b": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue' or 'my_value' or '12345')`,
		}},
		{"good widget", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 3}", nil},
		{
			"bad widget", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: W}\nspec: {size: 0, color: green, collor: red, parts: [a, a]}", []string{
				`spec.collor: unknown field`,
				`spec.color: unsupported value: "green": supported values: "red", "blue"`,
				`spec.parts[1]: duplicate value: "a"`,
				`spec.size: invalid value: 0: spec.size in body should be greater than or equal to 1`,
			},
		},
		{"quotes in a widget", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: \"3\"}", []string{
			`spec.size: invalid value: "string": spec.size in body must be of type integer: "string" (hint: remove the quotes)`,
		}},
		{"rule of a widget", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 11}", []string{`spec: invalid value: size must be at most most`}},
		{"nulls", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w, labels: null, creationTimestamp: null}\nspec: {size: 3, color: null, most: null, parts: null, env: [{name: a, value: null}]}", nil},
		{
			"nulls that matter", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: null, parts: [null]}", []string{
				`spec.parts[0]: invalid value: "null": spec.parts[0] in body must be of type string: "null"`,
				`spec.size: required value`,
			},
		},
		{"a resource inside", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 3, template: {apiVersion: v1, kind: Pod, metadata: {name: ok, creationTimestamp: null}, spec: {anything: 1}}}", nil},
		{"an unknown field of metadata inside", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 3, template: {apiVersion: v1, kind: Pod, metadata: {nme: ok}}}", []string{"spec.template.metadata.nme: unknown field"}},
		{
			"what is wrong with a resource inside", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 3, template: {apiVersion: 1, metadata: {labels: {a: b c}}}}", []string{
				`spec.template.apiVersion: invalid value: 1: must be a string`,
				`spec.template.kind: required value`,
				`spec.template.metadata.labels: invalid value: "b c": a valid label must be an empty string or consist of`,
			},
		},
		{
			"metadata inside that is no object", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 3, template: {apiVersion: v1, kind: Pod, metadata: {labels: 1}}}", []string{
				`spec.template.metadata: invalid value: `,
			},
		},
		{"good definition", widgets, nil},
		{"rule that does not compile", strings.Replace(widgets, "self.most'", "self.none'", 1), []string{
			`spec.versions[0].schema.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: invalid value: compilation failed: ERROR: <input>:1:18: undefined field 'none'`,
		}},
		{"rule that costs too much", strings.Replace(widgets, "self.size <= self.most", "self.parts.all(n, self.parts.exists(m, m == n))", 1), []string{
			`spec.versions[0].schema.openAPIV3Schema: forbidden: x-kubernetes-validations estimated rule cost total`,
			`spec.versions[0].schema.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: forbidden: estimated rule cost exceeds budget`,
			`spec.versions[0].schema.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: forbidden: contributed to`,
		}},
		{"definition with another name and no schema", "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: other}\nspec: {group: example.com, scope: Namespaced, names: {plural: oxen, kind: Ox}, versions: [{name: v1, served: true, storage: true}]}", []string{
			`metadata.name: invalid value: "other": must be spec.names.plural+"."+spec.group`,
			`spec.versions[0].schema.openAPIV3Schema: required value`,
		}},
		{"own kind", "apiVersion: gatehouse.dev/v1alpha1\nkind: SidecarProfile\nmetadata: {name: s}\nspec: {templates: {}}", []string{"spec.templates: unknown field"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			object := decode(t, test.object)
			found, _, err := schemas.Check(t.Context(), object.GroupVersionKind(), object.Object, nil)
			if err != nil {
				t.Error(err)
			}
			got := strings.Split(found.Error(), "\n")
			if len(found) == 0 {
				got = nil
			}
			if !slices.EqualFunc(got, test.want, strings.HasPrefix) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
	for kind, want := range map[string]string{"Nothing": schema.ErrUnknown.Error(), "Gadget": "its definition has no schema.openAPIV3Schema"} {
		gvk := k8sschema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: kind}
		if found, _, err := schemas.Check(t.Context(), gvk, map[string]any{}, nil); err == nil || err.Error() != want || len(found) > 0 {
			t.Errorf("%s: %v, %v, want %s", kind, found, err, want)
		}
	}
}
