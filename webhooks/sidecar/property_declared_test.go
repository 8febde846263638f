package sidecar_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// declared holds a pod and what became of it against what profiles declare. It
// reads the profiles as their authors write them and shares no code with what
// merges them: whatever is not as it was must be as a profile says.
type declared struct {
	testing.TB
	profiles []sidecar.Profile
	// shared is what the pod's own containers have and sidecars may get.
	shared rawjson.Value
}

func (d *declared) wrong(path, format string, args ...any) {
	d.Helper()
	d.Errorf("%s: %s", path, fmt.Sprintf(format, args...))
}

// templates returns the values at a path in the templates of all profiles.
func (d *declared) templates(path ...string) []rawjson.Value {
	var all []rawjson.Value
	for i := range d.profiles {
		if v := rawjson.Value(d.profiles[i].Spec.Template.Spec.Raw).Get(path...); v != nil {
			all = append(all, v)
		}
	}
	return all
}

// metadata returns the labels or annotations of all profiles.
func (d *declared) metadata(name string) []rawjson.Value {
	var all []rawjson.Value
	for i := range d.profiles {
		all = append(all, rawjson.Value(asJSON(d, d.profiles[i].Spec.Template.Metadata)).Get(name))
	}
	return all
}

// check wants of after that it is before with what is declared.
func (d *declared) check(before, after rawjson.Value) {
	d.Helper()
	own := before.Get("spec", "containers")
	d.shared = shareable(own)
	d.objects("", before, after, func(path, name string, was, is rawjson.Value) {
		switch name {
		case "metadata":
			d.objects(path, was, is, func(path, name string, was, is rawjson.Value) {
				switch name {
				case "labels", "annotations":
					d.grown(path, was, is, d.metadata(name))
				default:
					d.equal(path, was, is)
				}
			})
		case "spec":
			d.objects(path, was, is, func(path, name string, was, is rawjson.Value) {
				switch name {
				case "initContainers", "containers", "volumes":
					d.list(path, name, was, is)
				default:
					d.grown(path, was, is, d.templates(name))
				}
			})
		default:
			d.equal(path, was, is)
		}
	})
}

// objects compares two objects member by member: all that were there are there,
// in their order, and new ones behind them. Null and absent are an object
// without members.
func (d *declared) objects(path string, before, after rawjson.Value, member func(path, name string, was, is rawjson.Value)) {
	d.Helper()
	if before.Kind() != rawjson.Object && after.Kind() != rawjson.Object {
		d.equal(path, before, after)
		return
	}
	var names []string
	for name := range before.Members() {
		names = append(names, name.Text())
	}
	i := 0
	for name, value := range after.Members() {
		text := name.Text()
		if i < len(names) && names[i] != text {
			d.wrong(path, "member %q stands where %q was", text, names[i])
			return
		}
		i++
		member(path+"."+text, text, before.Get(text), value)
	}
	if i < len(names) {
		d.wrong(path, "members %q are gone", names[i:])
	}
}

func (d *declared) equal(path string, before, after rawjson.Value) {
	d.Helper()
	if string(before) != string(after) {
		d.wrong(path, "was %s, is %s, and no profile says so", before, after)
	}
}

// apiDefaults are what the API server puts in where nothing is said, by the names
// of fields that profiles may set nevertheless.
var apiDefaults = map[string]string{
	"dnsPolicy": `"ClusterFirst"`, "restartPolicy": `"Always"`, "schedulerName": `"default-scheduler"`, "serviceAccountName": `"default"`,
	"terminationGracePeriodSeconds": `30`, "enableServiceLinks": `true`,
	"terminationMessagePath": `"/dev/termination-log"`, "terminationMessagePolicy": `"File"`,
}

// extended are the lists behind whose elements others may be added. Every other
// list is one value.
var extended = []string{
	"env", "envFrom", "ports", "volumeMounts", "volumeDevices", "imagePullSecrets", "tolerations", "hostAliases", "hostnames", "readinessGates",
	"topologySpreadConstraints", "searches", "nameservers", "options", "supplementalGroups", "add", "drop",
	"preferredDuringSchedulingIgnoredDuringExecution",
}

// grown wants of after that it is before, with what one of the templates says
// where before says nothing.
func (d *declared) grown(path string, before, after rawjson.Value, templates []rawjson.Value) {
	d.Helper()
	if string(before) == string(after) {
		return
	}
	name := path[strings.LastIndexByte(path, '.')+1:]
	switch {
	case before == nil, before.Kind() == rawjson.Null, apiDefaults[name] == string(before):
		d.made(path, after, templates)
	case before.Kind() == rawjson.Object && after.Kind() == rawjson.Object:
		d.objects(path, before, after, func(path, name string, was, is rawjson.Value) {
			d.grown(path, was, is, membersOf(templates, name))
		})
	case before.Kind() == rawjson.Array && after.Kind() == rawjson.Array && slices.Contains(extended, name):
		own := elementsOf([]rawjson.Value{before})
		for i, element := range after.Elements() {
			at := fmt.Sprintf("%s[%d]", path, i)
			if i >= len(own) {
				d.made(at, element, elementsOf(templates))
				continue
			}
			was := own[i]
			if name == "hostAliases" && was.Kind() == rawjson.Object {
				d.grown(at, was, element, elementsOf(templates))
			} else {
				d.equal(at, was, element)
			}
		}
		if after.Len() < len(own) {
			d.wrong(path, "%d of %d elements are left", after.Len(), len(own))
		}
	default:
		d.equal(path, before, after)
	}
}

// made wants of a value that one of the templates gives it.
func (d *declared) made(path string, v rawjson.Value, templates []rawjson.Value) {
	d.Helper()
	if !isMade(v, templates) {
		d.wrong(path, "%s comes from none of %s", v, templates)
	}
}

func isMade(v rawjson.Value, templates []rawjson.Value) bool {
	switch v.Kind() {
	case rawjson.Object:
		if !slices.ContainsFunc(templates, func(t rawjson.Value) bool { return t.Kind() == rawjson.Object }) {
			return false
		}
		for name, value := range v.Members() {
			if !isMade(value, membersOf(templates, name.Text())) {
				return false
			}
		}
		return true
	case rawjson.Array:
		all := elementsOf(templates)
		for _, element := range v.Elements() {
			if !isMade(element, all) {
				return false
			}
		}
		return slices.ContainsFunc(templates, func(t rawjson.Value) bool { return t.Kind() == rawjson.Array })
	default:
		return slices.ContainsFunc(templates, func(t rawjson.Value) bool {
			text := t.Text()
			return t.Kind() == v.Kind() && (string(t) == string(v) || t.Kind() == rawjson.String && v.Is(strings.ReplaceAll(text, "$${", "${"))) ||
				strings.Contains(strings.ReplaceAll(text, "$${", ""), "${") && v.Kind() != rawjson.Null
		})
	}
}

// membersOf returns the members of a name.
func membersOf(templates []rawjson.Value, name string) []rawjson.Value {
	var all []rawjson.Value
	for _, t := range templates {
		if v := t.Get(name); v != nil {
			all = append(all, v)
		}
	}
	return all
}

// elementsOf returns the elements of all lists.
func elementsOf(templates []rawjson.Value) []rawjson.Value {
	var all []rawjson.Value
	for _, t := range templates {
		for _, v := range t.Elements() {
			all = append(all, v)
		}
	}
	return all
}

// ofName returns the elements of a name.
func ofName(all []rawjson.Value, name string) []rawjson.Value {
	return slices.DeleteFunc(slices.Clone(all), func(v rawjson.Value) bool { return !v.Get("name").Is(name) })
}

// list compares the lists of containers and volumes: the pod's own elements are
// all there, in their order, and between them those that profiles declare.
func (d *declared) list(path, name string, before, after rawjson.Value) {
	d.Helper()
	if string(before) == string(after) {
		return
	}
	declares := elementsOf(d.templates(name))
	own := elementsOf([]rawjson.Value{before})
	for i, element := range after.Elements() {
		at := fmt.Sprintf("%s[%d]", path, i)
		text := element.Get("name").Text()
		templates := ofName(declares, text)
		if len(templates) > 0 && len(ofName(elementsOf([]rawjson.Value{before}), text)) == 0 {
			if name != "volumes" && d.shares(text) {
				templates = append(templates, d.shared)
			}
			d.made(at, element, templates)
			continue
		}
		if len(own) == 0 {
			d.wrong(at, "%s is neither the pod's nor a profile's", element)
			return
		}
		was := own[0]
		own = own[1:]
		switch {
		case string(was) == string(element):
		case name == "volumes":
			d.equal(at, was, element)
		case d.profiles[0].Spec.OnSameName == v1alpha1.ReplaceSameName && was.Get("name").Is(text) && isMade(element, append(templates, d.shared)):
			// Replaced, by a profile that is applied.
		default:
			if len(templates) > 0 && d.shares(text) {
				templates = append(templates, d.shared)
			}
			d.grown(at, was, element, append(templates, d.additions(name, text)...))
		}
	}
	if len(own) > 0 {
		d.wrong(path, "%s are lost", own)
	}
}

// additions returns what profiles add to a container of the pod.
func (d *declared) additions(list, name string) []rawjson.Value {
	var all []rawjson.Value
	for i := range d.profiles {
		for _, a := range d.profiles[i].Spec.AppContainers {
			if name != "" && (list == "containers" || a.InitContainers) && (len(a.Names) == 0 || slices.Contains(a.Names, name)) && !slices.Contains(a.Except, name) {
				all = append(all, rawjson.Value(a.Template.Raw))
			}
		}
	}
	return all
}

func (d *declared) shares(name string) bool {
	for i := range d.profiles {
		for _, s := range d.profiles[i].Spec.Share {
			if s.Container == name {
				return true
			}
		}
	}
	return false
}

// shareable returns what containers may share: their mounts, as they are and
// read-only, their devices and their environment.
func shareable(containers rawjson.Value) rawjson.Value {
	all := map[string][]json.RawMessage{}
	for _, c := range containers.Elements() {
		for _, list := range []string{"volumeMounts", "volumeDevices", "env"} {
			for _, v := range c.Get(list).Elements() {
				all[list] = append(all[list], json.RawMessage(v))
				if list == "volumeMounts" && v.Kind() == rawjson.Object {
					all[list] = append(all[list], json.RawMessage(`{"readOnly":true}`))
				}
			}
		}
	}
	// Members of one mount are looked for in all of the list.
	var b bytes.Buffer
	b.WriteByte('{')
	for i, list := range slices.Sorted(maps.Keys(all)) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:[", list)
		for k, v := range all[list] {
			if k > 0 {
				b.WriteByte(',')
			}
			b.Write(v)
		}
		b.WriteByte(']')
	}
	b.WriteByte('}')
	return b.Bytes()
}

// complete wants everything of the profiles that are applied to be in the pod.
func (d *declared) complete(applied []string, before, after rawjson.Value, kept bool) {
	d.Helper()
	var declares []string
	for i := range d.profiles {
		for _, list := range []string{"initContainers", "containers"} {
			for _, e := range rawjson.Value(d.profiles[i].Spec.Template.Spec.Raw).Get(list).Elements() {
				declares = append(declares, e.Get("name").Text())
			}
		}
	}
	for i := range d.profiles {
		p := &d.profiles[i]
		if !slices.Contains(applied, p.Name) {
			continue
		}
		for name, value := range rawjson.Value(p.Spec.Template.Spec.Raw).Members() {
			is := after.Get("spec", name.Text())
			if is.Kind() == rawjson.Invalid || is.Kind() == rawjson.Null {
				d.wrong("spec."+name.Text(), "is not there")
			}
			for _, e := range value.Elements() {
				if text := e.Get("name").Text(); text != "" && len(ofName(elementsOf([]rawjson.Value{is}), text)) == 0 {
					d.wrong("spec."+name.Text(), "%q is not there", text)
				}
			}
		}
		for _, of := range []struct {
			name string
			want map[string]string
		}{{"labels", p.Spec.Template.Metadata.Labels}, {"annotations", p.Spec.Template.Metadata.Annotations}} {
			for key := range of.want {
				if after.Get("metadata", of.name, key) == nil {
					d.wrong("metadata."+of.name, "%q is not there", key)
				}
			}
		}
		for _, list := range []string{"initContainers", "containers"} {
			for _, c := range before.Get("spec", list).Elements() {
				name := c.Get("name").Text()
				if name == "" || slices.Contains(declares, name) {
					continue
				}
				is := ofName(elementsOf([]rawjson.Value{after.Get("spec", list)}), name)
				if len(is) != 1 {
					continue // No pod that can be created has two of one name.
				}
				d.completeContainer(list+"/"+name, p, list, name, is[0], kept)
			}
		}
	}
}

func (d *declared) completeContainer(path string, p *sidecar.Profile, list, name string, is rawjson.Value, kept bool) {
	d.Helper()
	one := declared{TB: d.TB, profiles: []sidecar.Profile{*p}}
	for _, t := range one.additions(list, name) {
		for _, e := range t.Get("env").Elements() {
			if text := e.Get("name").Text(); len(ofName(elementsOf([]rawjson.Value{is.Get("env")}), text)) == 0 {
				d.wrong(path, "env %q is not there", text)
			}
		}
		for _, m := range t.Get("volumeMounts").Elements() {
			at := m.Get("mountPath").Text()
			there := slices.ContainsFunc(elementsOf([]rawjson.Value{is.Get("volumeMounts")}), func(v rawjson.Value) bool {
				return v.Get("mountPath").Is(at) && (kept || v.Get("name").Is(m.Get("name").Text()))
			})
			if !there {
				d.wrong(path, "mount %q is not there", at)
			}
		}
	}
}
