package property_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// untouched holds a pod and what became of it against what profiles declare. It
// reads the profiles as their authors write them and shares no code with what
// merges them: what no profile declares is the same byte for byte, and in its place.
type untouched struct {
	testing.TB
	profiles []sidecar.Profile
}

func (u *untouched) wrong(path, format string, args ...any) {
	u.Helper()
	u.Errorf("%s: %s", path, fmt.Sprintf(format, args...))
}

// check wants of after that it is before with what is declared.
func (u *untouched) check(before, after rawjson.Value) {
	u.Helper()
	var templates []rawjson.Value
	for i := range u.profiles {
		template := &u.profiles[i].Spec.Template
		metadata := asJSON(u, map[string]any{"labels": template.Metadata.Labels, "annotations": template.Metadata.Annotations})
		templates = append(templates, rawjson.Value(fmt.Sprintf(`{"metadata":%s,"spec":%s}`, metadata, template.Spec.Raw)))
	}
	u.value("", before, after, templates)
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

// value wants of after that it is before, with more only where one of the templates has something.
func (u *untouched) value(path string, before, after rawjson.Value, templates []rawjson.Value) {
	u.Helper()
	name := path[strings.LastIndexByte(path, '.')+1:]
	switch {
	case string(before) == string(after):
	case before.Kind() == rawjson.Array && (path == ".spec.initContainers" || path == ".spec.containers" || path == ".spec.volumes"):
		u.named(path, name, before, after, templates)
	case len(templates) == 0:
		u.wrong(path, "was %s, is %s, and no profile says so", before, after)
	case before == nil, before.Kind() == rawjson.Null, apiDefaults[name] == string(before):
	case before.Kind() == rawjson.Object && after.Kind() == rawjson.Object:
		u.members(path, before, after, templates)
	case before.Kind() == rawjson.Array && after.Kind() == rawjson.Array && slices.Contains(extended, name):
		own, all := elements(before), elements(after)
		if len(all) < len(own) {
			u.wrong(path, "%d of %d elements are left", len(all), len(own))
			return
		}
		for i := range own {
			if at := fmt.Sprintf("%s[%d]", path, i); name == "hostAliases" {
				u.value(at, own[i], all[i], elements(templates...))
			} else {
				u.value(at, own[i], all[i], nil)
			}
		}
	default:
		u.wrong(path, "was %s, is %s", before, after)
	}
}

// members compares two objects: all members that were there are there, in their order, and new ones behind them.
func (u *untouched) members(path string, before, after rawjson.Value, templates []rawjson.Value) {
	u.Helper()
	var names []string
	for name := range before.Members() {
		names = append(names, name.Text())
	}
	i := 0
	for name, value := range after.Members() {
		text := name.Text()
		if i < len(names) && names[i] != text {
			u.wrong(path, "member %q stands where %q was", text, names[i])
			return
		}
		i++
		var below []rawjson.Value
		for _, t := range templates {
			if v := t.Get(text); v != nil {
				below = append(below, v)
			}
		}
		if path != ".metadata.annotations" || text != v1alpha1.StatusAnnotation {
			u.value(path+"."+text, before.Get(text), value, below)
		}
	}
	if i < len(names) {
		u.wrong(path, "members %q are gone", names[i:])
	}
}

// elements returns the elements of all lists.
func elements(lists ...rawjson.Value) []rawjson.Value {
	var all []rawjson.Value
	for _, list := range lists {
		for _, v := range list.Elements() {
			all = append(all, v)
		}
	}
	return all
}

// ofName returns the elements of a name.
func ofName(all []rawjson.Value, name string) []rawjson.Value {
	return slices.DeleteFunc(slices.Clone(all), func(v rawjson.Value) bool { return !v.Get("name").Is(name) })
}

// named compares the lists of containers and volumes: the pod's own elements are
// all there, in their order, and between them those that profiles declare.
func (u *untouched) named(path, list string, before, after rawjson.Value, templates []rawjson.Value) {
	u.Helper()
	own := elements(before)
	for i, element := range elements(after) {
		at := fmt.Sprintf("%s[%d]", path, i)
		name := element.Get("name").Text()
		declared := ofName(elements(templates...), name)
		if len(declared) > 0 && len(ofName(elements(before), name)) == 0 {
			continue // It is a profile's.
		}
		if len(own) == 0 {
			u.wrong(at, "%s is neither the pod's nor a profile's", element)
			return
		}
		was := own[0]
		own = own[1:]
		replaced := u.profiles[0].Spec.OnSameName == v1alpha1.ReplaceSameName && len(declared) > 0 && was.Get("name").Is(name)
		switch {
		case list == "volumes":
			u.value(at, was, element, nil)
		case !replaced:
			u.value(at, was, element, append(declared, u.additions(list, name, len(declared) > 0)...))
		}
	}
	if len(own) > 0 {
		u.wrong(path, "%s are lost", own)
	}
}

// additions returns what profiles add to a container of the pod, or share with one of theirs.
func (u *untouched) additions(list, name string, declared bool) []rawjson.Value {
	var all []rawjson.Value
	for i := range u.profiles {
		for _, a := range u.profiles[i].Spec.AppContainers {
			if name != "" && (list == "containers" || a.InitContainers) && (len(a.Names) == 0 || slices.Contains(a.Names, name)) && !slices.Contains(a.Except, name) {
				all = append(all, rawjson.Value(a.Template.Raw))
			}
		}
		for _, s := range u.profiles[i].Spec.Share {
			if declared && s.Container == name {
				all = append(all, rawjson.Value(`{"volumeMounts":[],"volumeDevices":[],"env":[]}`))
			}
		}
	}
	return all
}
