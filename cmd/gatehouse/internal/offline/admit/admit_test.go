package admit

import (
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

const profile = `
metadata: {name: logs}
spec:
  injection: OptOut
  parameters: [{name: level, type: enum, enum: [info, debug], default: info}]
  template:
    spec:
      initContainers:
        - name: logs
          image: registry.example/logs:1
          restartPolicy: Always
          args: ["--level=${params.level}"]
          startupProbe: {tcpSocket: {port: 2020}}
`

func set(t *testing.T) *sidecar.Set {
	t.Helper()
	var p v1alpha1.SidecarProfile
	if err := yaml.UnmarshalStrict([]byte(profile), &p); err != nil {
		t.Fatal(err)
	}
	s, err := sidecar.Compile(sidecar.Spec{Profiles: []sidecar.Profile{{Source: "profile.yaml", SidecarProfile: p}}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func podRequest(t *testing.T, annotations string) admission.Request {
	t.Helper()
	req, err := Request(request.NewResources(nil), request.Spec{
		Object:    []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","annotations":` + annotations + `},"spec":{"containers":[{"name":"a","image":"a"}]}}`),
		Namespace: "shop",
	})
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		annotations, policy, message string
	}{
		"of a profile": {
			`{"logs.sidecar.gatehouse.dev/level":"loud"}`, "logs",
			`metadata.annotations[logs.sidecar.gatehouse.dev/level]: "loud" is invalid: must be one of "info", "debug"`,
		},
		"of a word that nobody understands": {
			`{"sidecar.gatehouse.dev/inject":"yes"}`, "",
			`metadata.annotations[sidecar.gatehouse.dev/inject]: "yes" is not the name of a sidecar profile`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := podRequest(t, c.annotations)
			before := string(req.Object.Raw)
			d := Inject(t.Context(), set(t), &req)
			if d.Err != nil {
				t.Fatal(d.Err)
			}
			violations := Refusals(&d)
			if len(violations) != 1 {
				t.Fatalf("got %+v", violations)
			}
			v := &violations[0]
			if v.Kind != InjectionKind || v.Rule != InjectionRule || v.Policy != c.policy || !strings.HasPrefix(v.Message, c.message) || !v.Refuses() {
				t.Errorf("got %+v", v)
			}
			if string(req.Object.Raw) != before {
				t.Error("the pod is changed though it is refused")
			}
		})
	}
}

func TestRequest(t *testing.T) {
	t.Parallel()
	resources := request.NewResources(nil)
	deployment := []byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a","image":"a"}]}}}}`)
	t.Run("both objects have defaults", func(t *testing.T) {
		t.Parallel()
		req, err := Request(resources, request.Spec{Object: deployment, OldObject: deployment, Namespace: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		for _, raw := range [][]byte{req.Object.Raw, req.OldObject.Raw} {
			if got := rawjson.Value(raw).Get("spec", "replicas"); string(got) != "1" {
				t.Errorf("replicas %q in %s", got, raw)
			}
		}
	})
	t.Run("options have none", func(t *testing.T) {
		t.Parallel()
		const exec = `{"apiVersion":"v1","kind":"PodExecOptions","command":["sh"]}`
		req, err := Request(resources, request.Spec{Object: []byte(exec), Operation: admissionv1.Connect, Name: "a", Namespace: "shop"})
		if err != nil || string(req.Object.Raw) != exec {
			t.Errorf("got %s (%v)", req.Object.Raw, err)
		}
	})
	t.Run("a key that is given twice", func(t *testing.T) {
		t.Parallel()
		twice := []byte(`{"apiVersion":"v1","kind":"Pod","spec":{"a":1,"a":2}}`)
		_, err := Request(resources, request.Spec{Object: twice, OldObject: twice})
		if _, ok := errors.AsType[*rawjson.DuplicateKeyError](err); !ok || strings.Count(err.Error(), "object: ") != 1 || !strings.Contains(err.Error(), "oldObject: ") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no object", func(t *testing.T) {
		t.Parallel()
		_, err := Request(resources, request.Spec{Object: []byte(`[1`)})
		if err == nil || !strings.HasPrefix(err.Error(), "object: invalid JSON") {
			t.Errorf("got %v", err)
		}
	})
}
