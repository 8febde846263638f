package main

import (
	"bytes"
	"net/http"
	"runtime/metrics"
	"strconv"
	"testing"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// The bound on the memory that a review allocates: what it allocates for each byte of a
// request may be perByte times as much for one with factorOfFuzz times as many elements,
// and spare bytes more. What grows with the square is factorOfFuzz times as much.
const (
	elements     = 50
	factorOfFuzz = 8
	perByte      = 3
	spare        = 1 << 20
)

// FuzzWorkPerByte repeats an element between the parts of an object and holds that a
// review allocates no more memory for each byte if there are more elements. A '#' in the
// element is its number.
//
// It sees what allocates: findings, texts, copies, decoded values, and therefore most
// loops that compare all with all and say or build something. It does not see loops that
// only read, such as scans of raw JSON and slices.Contains, nor time that cel-go takes
// without allocating: for those, TestGrowth counts blocks of known shapes.
func FuzzWorkPerByte(f *testing.F) {
	handler, err := newHandler()
	if err != nil {
		f.Fatal(err)
	}
	targets := [...]struct {
		path, group, kind, resource string
		update                      bool
	}{
		{"/mutate", "", "Pod", "pods", false},
		{"/validate", "", "Pod", "pods", false},
		{"/validate", "", "Pod", "pods", true},
		{"/validate", "apps", "Deployment", "deployments", true},
		{"/validate", "gatehouse.dev", "SidecarProfile", "sidecarprofiles", false},
		{"/validate", "gatehouse.dev", "AdmissionPolicy", "admissionpolicies", false},
		{"/validate", "gatehouse.dev", "PolicyException", "policyexceptions", false},
		{"/validate", "gatehouse.dev", "AccessToken", "accesstokens", false},
		{"/validate", "gatehouse.dev", "Grant", "grants", false},
	}
	const (
		metadata = `"metadata":{"name":"web","namespace":"shop"}`
		pod      = `{"apiVersion":"v1","kind":"Pod",` + metadata + `,"spec":{"containers":[{"name":"web","image":"web:1"}],`
		own      = `{"apiVersion":"gatehouse.dev/v1alpha1",` + metadata + `,`
		profile  = own + `"kind":"SidecarProfile","spec":{`
		policy   = own + `"kind":"AdmissionPolicy","spec":{"validations":[{"expression":"true"}],`
	)
	for _, seed := range []struct {
		targets             []byte
		head, element, tail string
	}{
		{[]byte{0, 1, 2}, pod + `"ephemeralContainers":[`, `{"name":"c#","image":"i","securityContext":{"privileged":true}}`, `]}}`},
		{[]byte{0, 1, 2}, pod + `"initContainers":[`, `{"name":"c#","image":"i","ports":[{"containerPort":1,"hostPort":1}],"volumeMounts":[{"name":"v","mountPath":"/#"}]}`, `]}}`},
		{[]byte{0, 1, 2}, pod + `"securityContext":{"sysctls":[`, `{"name":"kernel.x#","value":"1"}`, `]}}}`},
		{[]byte{0, 1}, pod + `"tolerations":[`, `{"key":"k#"}`, `]}}`},
		{[]byte{0, 1}, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","annotations":{"sidecar.gatehouse.dev/status":"{\"profiles\":[{\"name\":\"agent\",\"revision\":\"1\",\"containers\":[`, `\"x#\"`, `]}]}"}},"spec":{"containers":[{"name":"x1"}]}}`},
		{[]byte{3}, `{"apiVersion":"apps/v1","kind":"Deployment",` + metadata + `,"spec":{"template":{"spec":{"containers":[`, `{"name":"c#","image":"i","securityContext":{"privileged":true}}`, `]}}}}`},
		{[]byte{4}, profile + `"template":{"spec":{"containers":[`, `{"name":"c","image":"i","ports":[{"containerPort":1}],"volumeMounts":[{"name":"v#","mountPath":"/a"}]}`, `]}}}}`},
		{[]byte{4}, profile + `"template":{"spec":{"tolerations":[`, `{"key":"k","operator":"x"}`, `]}}}}`},
		{[]byte{4}, profile + `"parameters":[`, `{"name":"p#","type":"x"}`, `]}}`},
		{[]byte{4}, profile + `"appContainers":[`, `{"names":["a#"],"template":{"env":[{"name":"E","value":"$(E)"}],"volumeDevices":[{"name":"v","devicePath":"/a"}]}}`, `]}}`},
		{[]byte{5}, policy + `"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":[`, `"pods/*"`, `]}]}}}`},
		{[]byte{5}, policy + `"variables":[`, `{"name":"v#","expression":"variables.x#"}`, `]}}`},
		{[]byte{6}, own + `"kind":"PolicyException","spec":{"reason":"x","match":{"names":["x"]},"policies":[{"name":"images","rules":[`, `"validations[#]"`, `]}]}}`},
		{[]byte{7}, own + `"kind":"AccessToken","spec":{"sha256":"x","user":{"username":"a","groups":[`, `"g#"`, `]}}}`},
		{[]byte{8}, own + `"kind":"Grant","spec":{"subject":{"user":"a"},"groups":[`, `"g#"`, `]}}`},
	} {
		for _, target := range seed.targets {
			f.Add(target, []byte(seed.head), []byte(seed.element), []byte(seed.tail))
		}
	}
	f.Fuzz(func(t *testing.T, target byte, head, element, tail []byte) {
		const longest = 1000 // so that one input takes no second
		if len(head)+len(element)+len(tail) > longest {
			return
		}
		at := targets[int(target)%len(targets)]
		work := func(n int) (length, allocated uint64) {
			object := bytes.Clone(head)
			for i := range n {
				if i > 0 {
					object = append(object, ',')
				}
				object = append(object, bytes.ReplaceAll(element, []byte("#"), strconv.AppendInt(nil, int64(i), 10))...)
			}
			object = append(object, tail...)
			if value, err := rawjson.Parse(object); err != nil || value.Kind() != rawjson.Object {
				return 0, 0
			}
			old := ""
			if at.update {
				old = string(bytes.ReplaceAll(object, []byte(`"image":"`), []byte(`"image":"x`)))
			}
			r := requestOf(at.path, at.group, at.kind, at.resource, string(object), old)
			before := allocatedBytes()
			response := send(handler, r)
			if response.Code != http.StatusOK && response.Code != http.StatusInternalServerError && response.Code != http.StatusBadRequest {
				t.Errorf("%d: %s", response.Code, response.Body)
			}
			return uint64(len(r.body)), allocatedBytes() - before
		}
		length, allocated := work(elements)
		if length == 0 {
			return
		}
		longer, more := work(factorOfFuzz * elements)
		if more > spare+perByte*allocated*longer/length {
			t.Errorf("%d bytes were allocated for a request of %d bytes, and %d for one of %d bytes", allocated, length, more, longer)
		}
	})
}

func allocatedBytes() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
