package sidecar

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// TestReadAgain reads one pod after another with the same scratch: nothing of the
// first is left for the second, and nothing is kept of either.
func TestReadAgain(t *testing.T) {
	t.Parallel()
	var sc scratch
	read := func(text string) *pod {
		_ = sc.pod.parse(&sc.reader, []byte(text))
		return &sc.pod
	}
	p := read(`{"metadata":{"name":"a","annotations":{"mesh.sidecar.gatehouse.dev/cpu":"1","kubernetes.io/config.mirror":"x"}},"spec":{"containers":[{"name":"app"}],"volumes":{}}}`)
	if !p.parameters || !p.mirror || len(p.items) != 1 || p.specError() == nil {
		t.Fatalf("read %+v", p)
	}
	sc.clear()
	// Both end in the middle of an object.
	read(`{"metadata":{"labels":{"a":"b"},"labels":{}}}`)
	sc.clear()
	p = read(`{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"other"},{}]}}`)
	if p.parameters || p.mirror || p.name != nil || len(p.items) != 2 || p.specError() != nil {
		t.Fatalf("read %+v", p)
	}
	sc.clear()
	for i, it := range sc.pod.items[:cap(sc.pod.items)] {
		if it.name != nil || it.text != nil {
			t.Errorf("item %d is kept", i)
		}
	}
	for i := range sc.reader.seen {
		for k, name := range sc.reader.seen[i].first {
			if name != nil {
				t.Errorf("name %d at depth %d is kept", k, i)
			}
		}
	}
	read(`{"spec":{"volumes":[` + strings.Repeat(`{},`, 2*maxKeptItems) + `{}]}}`)
	sc.clear()
	if got := cap(sc.pod.items); got > maxKeptItems {
		t.Errorf("room for %d items is kept", got)
	}
}

func TestFields(t *testing.T) {
	t.Parallel()
	many := make([]string, 3*fewMembers)
	for i := range many {
		many[i] = fmt.Sprintf(`"k%d":%d`, i, i)
	}
	for _, tc := range []struct {
		name, text string
		want       int
		dup        string
	}{
		{"none", `{}`, 0, ""},
		{"no object", `[{"a":1}]`, 0, ""},
		{"some", `{"a":1,"b":{"a":2}}`, 2, ""},
		{"escapes", `{"a":1,"\u0061":2}`, 0, "a"},
		{"many", "{" + strings.Join(many, ",") + "}", len(many), ""},
		{"many and one of the first", "{" + strings.Join(many, ",") + `,"k3":0}`, 0, "k3"},
		{"many and one of the last", "{" + strings.Join(many, ",") + `,"k90":0}`, 0, "k90"},
	} {
		v, err := rawjson.Parse([]byte(tc.text))
		if err != nil {
			t.Fatal(err)
		}
		members, err := fields(nil, v)
		dup, _ := errors.AsType[*rawjson.DuplicateKeyError](err)
		if (dup != nil) != (tc.dup != "") || dup != nil && dup.Key != tc.dup || dup == nil && len(members) != tc.want {
			t.Errorf("%s: %d members, %v", tc.name, len(members), err)
		}
	}
}

// FuzzReadPod holds what is read in one pass against looking it up.
func FuzzReadPod(f *testing.F) {
	for _, seed := range []string{
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","generateName":"a-","ownerReferences":[{"name":"b"}],"labels":{"x":"y"},"annotations":{"sidecar.gatehouse.dev/inject":"true"}},"spec":{"containers":[{"name":"app","ports":[{"containerPort":1}]},{}],"hostNetwork":true}}`,
		`{"meta\u0064ata":{"annot\u0061tions":{"mesh.sidecar.gatehouse.dev\/cpu":"1"}},"sp\u0065c":{"c\u006fntainers":[{"n\u0061me":"app"}]}}`,
		`{"metadata":null,"spec":{"volumes":[{"name":"a"}],"initContainers":[{"name":"b","restartPolicy":"Always"}],"volumes":[]}}`,
		`{"spec":{"containers":[{"name":"a","name":"a"},1]}}`, `{"spec":{"securityContext":{"windowsOptions":{"hostProcess":true}}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := rawjson.Parse(data)
		if err != nil {
			return
		}
		var sc scratch
		p := &sc.pod
		err = p.read(&sc.reader, v)
		for _, looked := range []rawjson.Value{v, v.Get("metadata"), v.Get("metadata", "annotations"), v.Get("metadata", "labels"), v.Get("spec")} {
			if _, dup := looked.DuplicateKey(); dup && err == nil {
				t.Fatalf("%s is read", data)
			}
		}
		if err != nil {
			return
		}
		parameters := false
		for name := range v.Get("metadata", "annotations").Members() {
			known := name.Is("sidecar.gatehouse.dev/inject") || name.Is("sidecar.gatehouse.dev/status") || name.Is(mirrorAnnotation)
			parameters = parameters || !known && strings.Contains(name.Text(), mark)
		}
		for _, read := range []struct {
			what      string
			got, want rawjson.Value
		}{
			{"metadata", p.metadata, v.Get("metadata")},
			{"name", p.name, v.Get("metadata", "name")},
			{"generateName", p.generateName, v.Get("metadata", "generateName")},
			{"ownerReferences", p.owners, v.Get("metadata", "ownerReferences")},
			{"labels", p.labels, v.Get("metadata", "labels")},
			{"annotations", p.annotations, v.Get("metadata", "annotations")},
			{"inject", p.inject, v.Get("metadata", "annotations", "sidecar.gatehouse.dev/inject")},
			{"status", p.status, v.Get("metadata", "annotations", "sidecar.gatehouse.dev/status")},
			{"spec", p.spec, v.Get("spec")},
			{"hostNetwork", p.hostNetwork, v.Get("spec", "hostNetwork")},
			{"restartPolicy", p.restartPolicy, v.Get("spec", "restartPolicy")},
			{"securityContext", p.security, v.Get("spec", "securityContext")},
		} {
			if !bytes.Equal(read.got, read.want) {
				t.Fatalf("%s of %s is %q, want %q", read.what, data, read.got, read.want)
			}
		}
		if p.parameters != parameters {
			t.Fatalf("%s: parameters is %v", data, p.parameters)
		}
		lookUpLists(t, p, v)
	})
}

func lookUpLists(t *testing.T, p *pod, v rawjson.Value) {
	t.Helper()
	fits := v.Get("spec").Kind() == rawjson.Object
	host, err := hostProcess(v.Get("spec", "securityContext"))
	fits = fits && err == nil
	for l := range p.lists {
		text := v.Get("spec", list(l).String())
		if !bytes.Equal(text, p.lists[l].text) {
			t.Fatalf("%s of %s is %q, want %q", list(l), v, p.lists[l].text, text)
		}
		kind := text.Kind()
		fits = fits && (kind == rawjson.Array || kind == rawjson.Null || kind == rawjson.Invalid)
		at := p.lists[l].from
		for _, element := range text.Elements() {
			if element.Kind() != rawjson.Object {
				fits = false
				continue
			}
			_, dup := element.DuplicateKey()
			inHost, err := hostProcess(element.Get("securityContext"))
			fits = fits && !dup && err == nil
			host = host || inHost
			it := p.item(at)
			at++
			if !bytes.Equal(it.text, element) {
				t.Fatalf("an element of %s is %q, want %q", v, it.text, element)
			}
			native := list(l) == initContainers && element.Get("restartPolicy").Is("Always")
			if !dup && (!bytes.Equal(it.name, element.Get("name")) || !bytes.Equal(it.ports, element.Get("ports")) || it.native != native) {
				t.Fatalf("%s is read as %+v", element, it)
			}
		}
		if at != p.lists[l].to {
			t.Fatalf("%s of %s ends at item %d, want %d", list(l), v, p.lists[l].to, at)
		}
	}
	if got := p.specError(); (got == nil) != fits {
		t.Fatalf("%s: error %v", v, got)
	}
	if fits && p.hostProcess != host {
		t.Fatalf("%s: hostProcess is %v", v, p.hostProcess)
	}
}
