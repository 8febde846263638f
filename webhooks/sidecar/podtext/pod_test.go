package podtext

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// TestReadAgain reads one pod after another with the same scratch: nothing of the
// first is left for the second, and nothing is kept of either.
func TestReadAgain(t *testing.T) {
	t.Parallel()
	var p Pod
	read := func(text string) { _ = p.Parse([]byte(text)) }
	read(`{"metadata":{"name":"a","annotations":{"mesh.sidecar.gatehouse.dev/cpu":"1","kubernetes.io/config.mirror":"x"}},"spec":{"containers":[{"name":"app"}],"volumes":{}}}`)
	if !p.HasGatehouseNames || !p.IsMirror || len(p.Elements) != 1 || p.SpecError() == nil {
		t.Fatalf("read %+v", p)
	}
	p.Clear()
	// Both end in the middle of an object.
	read(`{"metadata":{"labels":{"a":"b"},"labels":{}}}`)
	p.Clear()
	read(`{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"other"},{}]}}`)
	if p.HasGatehouseNames || p.IsMirror || p.name != nil || len(p.Elements) != 2 || p.SpecError() != nil {
		t.Fatalf("read %+v", p)
	}
	p.Clear()
	for i, it := range p.Elements[:cap(p.Elements)] {
		if it.Name != nil || it.Text != nil {
			t.Errorf("item %d is kept", i)
		}
	}
	read(`{"spec":{"volumes":[` + strings.Repeat(`{},`, 2*maxKeptElements) + `{}]}}`)
	p.Clear()
	if got := cap(p.Elements); got > maxKeptElements {
		t.Errorf("room for %d items is kept", got)
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
		p := new(Pod)
		err = p.Read(v.Cursor())
		readIndexed(t, v, p, err)
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
			parameters = parameters || !known && strings.Contains(name.Text(), Domain)
		}
		for _, read := range []struct {
			what      string
			got, want rawjson.Value
		}{
			{"metadata", p.Metadata, v.Get("metadata")},
			{"name", p.name, v.Get("metadata", "name")},
			{"generateName", p.generateName, v.Get("metadata", "generateName")},
			{"ownerReferences", p.owners, v.Get("metadata", "ownerReferences")},
			{"labels", p.Labels, v.Get("metadata", "labels")},
			{"annotations", p.Annotations, v.Get("metadata", "annotations")},
			{"inject", p.InjectAnnotation, v.Get("metadata", "annotations", "sidecar.gatehouse.dev/inject")},
			{"status", p.StatusAnnotation, v.Get("metadata", "annotations", "sidecar.gatehouse.dev/status")},
			{"spec", p.Spec, v.Get("spec")},
			{"hostNetwork", p.HostNetwork, v.Get("spec", "hostNetwork")},
			{"restartPolicy", p.RestartPolicy, v.Get("spec", "restartPolicy")},
			{"securityContext", p.SecurityContext, v.Get("spec", "securityContext")},
		} {
			if !bytes.Equal(read.got, read.want) {
				t.Fatalf("%s of %s is %q, want %q", read.what, data, read.got, read.want)
			}
		}
		if p.HasGatehouseNames != parameters {
			t.Fatalf("%s: parameters is %v", data, p.HasGatehouseNames)
		}
		lookUpLists(t, p, v)
	})
}

// readIndexed holds that a pod that is read from an Index is the same.
func readIndexed(t *testing.T, v rawjson.Value, want *Pod, wantErr error) {
	t.Helper()
	var x rawjson.Index
	if x.Read(v) != nil {
		return
	}
	var got Pod
	err := got.Read(x.Cursor(0))
	got.isUnique = false                                                                        // without an index, it is not known
	if fmt.Sprint(err) != fmt.Sprint(wantErr) || err == nil && !reflect.DeepEqual(&got, want) { //nolint:govet // its specError is equal if its message is
		t.Fatalf("%s: with an index\n%+v, %v\nwithout\n%+v, %v", v, &got, err, want, wantErr)
	}
}

func lookUpLists(t *testing.T, p *Pod, v rawjson.Value) {
	t.Helper()
	fits := v.Get("spec").Kind() == rawjson.Object
	host, err := hostProcess(v.Get("spec", "securityContext"))
	fits = fits && err == nil
	for l := range p.Lists {
		text := v.Get("spec", List(l).String())
		if !bytes.Equal(text, p.Lists[l].Text) {
			t.Fatalf("%s of %s is %q, want %q", List(l), v, p.Lists[l].Text, text)
		}
		kind := text.Kind()
		fits = fits && (kind == rawjson.Array || kind == rawjson.Null || kind == rawjson.Invalid)
		at := p.Lists[l].From
		for _, element := range text.Elements() {
			if element.Kind() != rawjson.Object {
				fits = false
				continue
			}
			_, dup := element.DuplicateKey()
			inHost, err := hostProcess(element.Get("securityContext"))
			fits = fits && !dup && err == nil
			host = host || inHost
			it := p.Element(at)
			at++
			if !bytes.Equal(it.Text, element) {
				t.Fatalf("an element of %s is %q, want %q", v, it.Text, element)
			}
			native := List(l) == InitContainers && element.Get("restartPolicy").Is("Always")
			if !dup && (!bytes.Equal(it.Name, element.Get("name")) || !bytes.Equal(it.Ports, element.Get("ports")) || it.IsNative != native) {
				t.Fatalf("%s is read as %+v", element, it)
			}
		}
		if at != p.Lists[l].To {
			t.Fatalf("%s of %s ends at item %d, want %d", List(l), v, p.Lists[l].To, at)
		}
	}
	if got := p.SpecError(); (got == nil) != fits {
		t.Fatalf("%s: error %v", v, got)
	}
	if fits && p.IsHostProcess != host {
		t.Fatalf("%s: hostProcess is %v", v, p.IsHostProcess)
	}
}
