package request

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
)

// recorded are requests that kube-apiserver 1.37.0 sent to a webhook for
// everything, with less in the objects.
func recorded(t *testing.T) map[string]admissionv1.AdmissionRequest {
	t.Helper()
	text, err := os.ReadFile("testdata/recorded.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	requests := make(map[string]admissionv1.AdmissionRequest)
	for line := range bytes.Lines(text) {
		var r admissionv1.AdmissionRequest
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		name := string(r.Operation) + " " + r.Kind.Kind + " " + r.Resource.Resource + " " + r.SubResource + " " + string(r.Options.Raw)
		requests[name] = r
	}
	if len(requests) < 20 {
		t.Fatalf("%d requests are recorded", len(requests))
	}
	return requests
}

// without is an object without its namespace, as people write it.
func without(t *testing.T, raw []byte) []byte {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil || object == nil {
		return raw
	}
	if metadata, ok := object["metadata"].(map[string]any); ok {
		delete(metadata, "namespace")
	}
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func asJSON(t *testing.T, r admissionv1.AdmissionRequest) string {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	if text, err = json.MarshalIndent(value, "", " "); err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestBuildsWhatTheAPIServerSends tells of every recorded request as little as a
// person would, and gets all of it back.
func TestBuildsWhatTheAPIServerSends(t *testing.T) {
	t.Parallel()
	resources := NewResources(nil)
	for name, want := range recorded(t) {
		if want.SubResource == "scale" || *want.DryRun {
			continue // no manifest says this of itself
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Spec{
				Object: without(t, want.Object.Raw), OldObject: without(t, want.OldObject.Raw),
				Namespace: "shop", User: want.UserInfo,
			}
			switch want.SubResource {
			case "status", "ephemeralcontainers", "binding":
				s.SubResource = want.SubResource
			}
			if want.Operation == admissionv1.Connect {
				s.Name = want.Name
			}
			if strings.Contains(string(want.Options.Raw), "gracePeriodSeconds") {
				s.Options = want.Options.Raw
			}
			got, err := resources.Build(s)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := asJSON(t, got.AdmissionRequest), asJSON(t, want); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestBuild(t *testing.T) {
	t.Parallel()
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"x":1.50}}`
	resources := NewResources(nil)
	for name, c := range map[string]struct {
		spec Spec
		// want says how what is built looks in one line: operation, resource,
		// subresource, namespace, name, object and oldObject.
		want string
	}{
		"every byte but the namespace": {
			Spec{Object: []byte(pod), Namespace: "shop"},
			`CREATE v1/pods "" shop/a {"metadata":{"namespace":"shop","name":"a"},"apiVersion":"v1","kind":"Pod","spec":{"x":1.50}} `,
		},
		"a namespace of its own": {
			Spec{Object: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a", "namespace":"own"}}`), Namespace: "shop"},
			`CREATE v1/pods "" own/a {"apiVersion":"v1","kind":"Pod","metadata":{"name":"a", "namespace":"own"}} `,
		},
		"no metadata": {
			Spec{Object: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":null}`), Namespace: "shop"},
			`CREATE v1/pods "" shop/ {"metadata":{"namespace":"shop"},"apiVersion":"v1","kind":"Pod"} `,
		},
		"a namespace that does not count": {
			Spec{Object: []byte(`{"apiVersion":"v1","kind":"Node","metadata":{"namespace":"x","name":"n"}}`), Namespace: "shop"},
			`CREATE v1/nodes "" /n {"metadata":{"name":"n"},"apiVersion":"v1","kind":"Node"} `,
		},
		"null is none": {
			Spec{Object: []byte(` null `), OldObject: []byte(pod), Namespace: "shop"},
			`DELETE v1/pods "" shop/a  {"metadata":{"namespace":"shop","name":"a"},"apiVersion":"v1","kind":"Pod","spec":{"x":1.50}}`,
		},
		"a binding that is posted by itself": {
			Spec{Object: []byte(`{"apiVersion":"v1","kind":"Binding","metadata":{"name":"a","namespace":"shop"}}`)},
			`CREATE v1/bindings "" shop/a {"apiVersion":"v1","kind":"Binding","metadata":{"name":"a","namespace":"shop"}} `,
		},
		"an unknown kind without a namespace": {
			Spec{Object: []byte(`{"apiVersion":"example.org/v1","kind":"Ox","metadata":{"name":"a"}}`)},
			`CREATE example.org/v1/oxes "" /a {"apiVersion":"example.org/v1","kind":"Ox","metadata":{"name":"a"}} `,
		},
		"a subresource that nobody knows": {
			Spec{Object: []byte(pod), OldObject: []byte(pod), Namespace: "shop", SubResource: "future"},
			`UPDATE v1/pods "future" shop/a {"metadata":{"namespace":"shop","name":"a"},"apiVersion":"v1","kind":"Pod","spec":{"x":1.50}} {"metadata":{"namespace":"shop","name":"a"},"apiVersion":"v1","kind":"Pod","spec":{"x":1.50}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.spec.User = authenticationv1.UserInfo{Username: "someone"}
			r, err := resources.Build(c.spec)
			if err != nil {
				t.Fatal(err)
			}
			version := strings.TrimPrefix(r.Resource.Group+"/"+r.Resource.Version, "/")
			got := string(r.Operation) + " " + version + "/" + r.Resource.Resource + ` "` + r.SubResource + `" ` + r.Namespace + "/" + r.Name +
				" " + string(r.Object.Raw) + " " + string(r.OldObject.Raw)
			if got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			if r.UserInfo.Username != "someone" || r.UID == "" {
				t.Errorf("user %q, UID %q", r.UserInfo.Username, r.UID)
			}
		})
	}
}

func TestBuildRefuses(t *testing.T) {
	t.Parallel()
	pod := []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"shop"}}`)
	exec := []byte(`{"apiVersion":"v1","kind":"PodExecOptions","command":["sh"]}`)
	scale := []byte(`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"d","namespace":"shop"}}`)
	resources := NewResources(nil)
	for name, c := range map[string]struct {
		spec Spec
		want string
	}{
		"nothing":              {Spec{}, `object: is missing, and so is oldObject`},
		"no JSON":              {Spec{Object: []byte(`{`), OldObject: []byte(`x`)}, "object: invalid JSON at byte 1: unexpected end\noldObject: invalid JSON at byte 0: expected a value"},
		"no object":            {Spec{Object: []byte(`[]`)}, `object: is an array, and must be an object`},
		"no apiVersion":        {Spec{Object: []byte(`{"kind":"Pod"}`)}, `object: apiVersion is missing, or not a string`},
		"kind of another kind": {Spec{Object: []byte(`{"apiVersion":"v1","kind":1}`)}, `object: kind is missing, or not a string`},
		"odd apiVersion":       {Spec{Object: []byte(`{"apiVersion":"a/b/c","kind":"Pod"}`)}, `object: apiVersion "a/b/c": must be VERSION or GROUP/VERSION`},
		"odd metadata":         {Spec{Object: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":[]}`)}, `object: metadata is an array, and must be an object`},
		"no namespace":         {Spec{Object: []byte(`{"apiVersion":"v1","kind":"Pod"}`)}, `namespace: is missing: pods are in namespaces`},
		"unknown operation":    {Spec{Object: pod, Operation: "PATCH"}, `operation "PATCH": must be CREATE, UPDATE, DELETE or CONNECT`},
		"CREATE with oldObject": {
			Spec{Object: pod, OldObject: pod, Operation: admissionv1.Create},
			`oldObject: must not be there: operation CREATE has none`,
		},
		"UPDATE without oldObject": {Spec{Object: pod, Operation: admissionv1.Update}, `oldObject: is missing: operation UPDATE has one`},
		"DELETE with object": {
			Spec{Object: pod, Operation: admissionv1.Delete},
			"object: must not be there: operation DELETE has none\noldObject: is missing: operation DELETE has one",
		},
		"two names": {
			Spec{Object: pod, OldObject: bytes.ReplaceAll(pod, []byte(`"a"`), []byte(`"b"`))},
			`name: is "a" in one place and "b" in another`,
		},
		"two namespaces": {
			Spec{Object: pod, OldObject: bytes.ReplaceAll(pod, []byte("shop"), []byte("till"))},
			`namespace: is "shop" in one place and "till" in another`,
		},
		"two kinds": {
			Spec{Object: pod, OldObject: bytes.ReplaceAll(pod, []byte("Pod"), []byte("Service"))},
			`oldObject: is a Service of v1, and object a Pod of v1: they must be of one kind and version`,
		},
		"exec without a name":     {Spec{Object: exec, Namespace: "shop"}, `name: is missing: operation CONNECT is about an object that has one`},
		"exec of a pod":           {Spec{Object: pod, SubResource: "exec"}, `object: kind "Pod" is not that of pods/exec: it must be a PodExecOptions of v1`},
		"proxy of a pod":          {Spec{Object: pod, SubResource: "proxy"}, `object: kind "Pod" is not that of pods/proxy: it must be a PodProxyOptions of v1`},
		"attach with exec":        {Spec{Object: exec, Name: "a", Namespace: "shop", SubResource: "attach"}, `object: kind "PodExecOptions" is that of the subresource "exec", and not of "attach"`},
		"scale of nobody knows":   {Spec{Object: scale, OldObject: scale}, `object: a Scale is that of the subresource "scale" of many resources, and does not say of which`},
		"scale of the wrong kind": {Spec{Object: pod, OldObject: pod, SubResource: "scale"}, `object: kind "Pod" is not that of pods/scale: it must be a Scale of autoscaling/v1`},
		"options":                 {Spec{Object: pod, Options: []byte(`"x"`)}, `options: are no JSON object`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := resources.Build(c.spec)
			if err == nil || err.Error() != c.want {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

// TestWithGroups adds the groups that the API server would add.
func TestWithGroups(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		username string
		groups   []string
		want     []string
	}{
		"a name":          {"jane", nil, []string{"system:authenticated"}},
		"groups":          {"jane", []string{"dev", "system:authenticated", "dev"}, []string{"dev", "system:authenticated"}},
		"anonymous":       {"system:anonymous", nil, []string{"system:unauthenticated"}},
		"service account": {"system:serviceaccount:shop:web", nil, []string{"system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"}},
		"nearly one":      {"system:serviceaccount:shop", nil, []string{"system:authenticated"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if u := WithGroups(authenticationv1.UserInfo{Username: c.username, Groups: c.groups}); u.Username != c.username || !slices.Equal(u.Groups, c.want) {
				t.Errorf("got %+v, want %q", u, c.want)
			}
		})
	}
}

// FuzzBuild: what is built of an object is built of it again, unchanged.
func FuzzBuild(f *testing.F) {
	for _, text := range []string{
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"a","name":"a","namespace":"b"},"metadata":{}}`,
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"\u0061","namespace":7}}`,
		`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"a"}}`,
		`{"apiVersion":"v1","kind":"PodExecOptions"}`,
		`null`, ``,
	} {
		f.Add([]byte(text))
	}
	resources := NewResources(nil)
	f.Fuzz(func(t *testing.T, text []byte) {
		first, err := resources.Build(Spec{Object: text, Namespace: "shop"})
		if err != nil {
			return
		}
		again, err := resources.Build(Spec{Object: first.Object.Raw, Namespace: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := asJSON(t, again.AdmissionRequest), asJSON(t, first.AdmissionRequest); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}
