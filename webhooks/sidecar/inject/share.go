package inject

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/defaults"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
)

// shareMounts adds mounts, devices and variables of the pod's own containers to containers
// of the template.
func (inj *injection) shareMounts() error {
	for i := range inj.in.Profile.Shares {
		s := &inj.in.Profile.Shares[i]
		for l := podtext.InitContainers; l <= podtext.Containers; l++ {
			k := slices.IndexFunc(inj.in.Profile.Elements[l], func(e profile.Element) bool { return e.Name == s.Container })
			if k < 0 {
				continue
			}
			if err := inj.share(s, l, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// share adds the shared settings to one container of the template: to the text that is
// added, or to the container in the pod if it is there already.
func (inj *injection) share(s *v1alpha1.SidecarShare, l podtext.List, k int) error {
	shared, needed, err := inj.sharedSettings(s, inj.isPrivileged(l, k))
	if err != nil || shared == nil {
		return err
	}
	f := inj.action(l, k)
	inj.checkVariables(s, l, k, shared, needed)
	m := merge.Merger{Record: new(merge.Record)}
	m.OnConflict = func(path, _ string) {
		if !strings.Contains(path, "env[") {
			inj.conflict("", inj.in.Profile.DeclineHint(), fmt.Sprintf("container %q of sidecar profile %q differs at %s from the application containers whose settings it shares",
				s.Container, inj.in.Profile.Name, path))
		}
	}
	if !f.isThere() {
		text := []byte(inj.in.Rendered.Elements[l][k].Raw)
		if f.raw != nil {
			text = f.raw
		}
		m.Editor = &merge.Editor{Text: text}
		if err := m.Object(merge.Path{}, text, shared, merge.ContainerRules); err != nil {
			return err
		}
		if inj.actions[l] == nil {
			inj.actions[l] = make([]action, len(inj.in.Profile.Elements[l]))
		}
		inj.actions[l][k].raw = m.Editor.Result()
		return nil
	}
	// Two shares can be about one container.
	if err := inj.now.Flush(); err != nil {
		return err
	}
	m.Editor = &inj.now.Editor
	own := inj.in.Earlier != nil && slices.Contains(inj.in.Earlier.Merged, s.Container)
	if own {
		// The container is the pod's, and stays when what was added goes.
		m.Record, m.Earlier = &inj.record, inj.earlierPaths
	}
	at := merge.Path{}.Member("spec").Member(l.String()).Element(f.index, merge.NameKey(s.Container))
	err = m.Object(at, inj.now.Pod.Element(inj.now.Pod.Lists[l].From+f.index).Text, shared, merge.ContainerRules)
	if own {
		inj.merger.Added = append(inj.merger.Added, m.Added...)
	}
	return err
}

// isPrivileged reports whether a container of the template is privileged, as the
// API server will see it.
func (inj *injection) isPrivileged(l podtext.List, k int) bool {
	if f := inj.action(l, k); f.kind == mergeInto || f.isThere() {
		own := inj.now.Pod.Element(inj.now.Pod.Lists[l].From+f.index).Text.Get("securityContext", "privileged")
		if own.Kind() == rawjson.Bool {
			return own.IsTrue()
		}
	}
	return rawjson.Value(inj.in.Rendered.Elements[l][k].Raw).Get("securityContext", "privileged").IsTrue()
}

// checkVariables finds variables that paths of shared mounts expand, and which the
// container has already with another value: it would see another directory than
// the pod's own containers.
func (inj *injection) checkVariables(s *v1alpha1.SidecarShare, l podtext.List, k int, shared rawjson.Value, needed map[string]bool) {
	if len(needed) == 0 {
		return
	}
	want := make(map[string]rawjson.Value, len(needed))
	for _, variable := range shared.Get("env").Elements() {
		if name := variable.Get("name").Text(); needed[name] {
			want[name] = variable
		}
	}
	check := func(container rawjson.Value) {
		last := make(map[string]rawjson.Value)
		for _, variable := range container.Get("env").Elements() {
			if name := variable.Get("name").Text(); want[name] != nil {
				last[name] = variable
			}
		}
		for _, name := range slices.Sorted(maps.Keys(last)) {
			if !profile.EqualVariable(last[name], want[name]) {
				inj.conflict("", inj.in.Profile.DeclineHint(), fmt.Sprintf("container %q of sidecar profile %q sets the environment variable %s to another value than the application containers, and a shared subPathExpr uses it",
					s.Container, inj.in.Profile.Name, podtext.Quote(name)))
			}
		}
	}
	f := inj.action(l, k)
	if f.kind == mergeInto || f.isThere() {
		check(inj.now.Pod.Element(inj.now.Pod.Lists[l].From + f.index).Text)
	}
	switch {
	case f.isThere():
	case f.raw != nil: // another share has been at it
		check(f.raw)
	default:
		check(rawjson.Value(inj.in.Rendered.Elements[l][k].Raw))
	}
}

type sharedSettings struct {
	share      *v1alpha1.SidecarShare
	privileged bool
	// lists are written in this order.
	env, volumeDevices, volumeMounts keyedList
	// expanded are the variables that paths of shared mounts expand.
	expanded map[string]bool
}

// keyedList is a list without two elements of one key.
type keyedList struct {
	elements []rawjson.Value
	at       map[string]int
}

// add adds an element, or returns the other one of its key.
func (u *keyedList) add(key string, value rawjson.Value) rawjson.Value {
	if i, there := u.at[key]; there {
		return u.elements[i]
	}
	if u.at == nil {
		u.at = make(map[string]int)
	}
	u.at[key] = len(u.elements)
	u.elements = append(u.elements, value)
	return nil
}

// sharedSettings returns what is shared, as a partial container, or nil, and the variables
// that paths in it expand.
func (inj *injection) sharedSettings(s *v1alpha1.SidecarShare, privileged bool) (rawjson.Value, map[string]bool, error) {
	g := sharedSettings{share: s, privileged: privileged, expanded: make(map[string]bool)}
	// Additions of profiles to the pod's own containers are not shared: whether it is
	// there already would depend on their order and on the number of calls.
	from := inj.in.First.Lists[podtext.Containers]
	for i := from.From; i < from.To; i++ {
		it := inj.in.First.Element(i)
		if name := it.Name.Text(); !inj.in.Owners.IsApp(podtext.Containers, name) || len(s.From) > 0 && !slices.Contains(s.From, name) {
			continue
		}
		if err := inj.collect(&g, it); err != nil {
			return nil, nil, err
		}
	}
	var dst []byte
	for _, list := range [...]struct {
		name string
		keyedList
	}{{"env", g.env}, {"volumeDevices", g.volumeDevices}, {"volumeMounts", g.volumeMounts}} {
		for i, element := range list.elements {
			if i == 0 {
				dst = append(append(append(dst, `,"`...), list.name...), `":[`...)
			} else {
				dst = append(dst, ',')
			}
			dst = append(dst, element...)
		}
		if len(list.elements) > 0 {
			dst = append(dst, ']')
		}
	}
	if len(dst) == 0 {
		return nil, nil, nil
	}
	dst[0] = '{'
	return append(dst, '}'), g.expanded, nil
}

func (inj *injection) collect(g *sharedSettings, it *podtext.Element) error {
	var expanded []string
	if g.share.VolumeMounts {
		for _, mount := range it.Text.Get("volumeMounts").Elements() {
			if merge.CleanPath(mount.Get("mountPath").Text()) == defaults.TokenMount {
				continue
			}
			expanded = append(expanded, variableNames(mount.Get("subPathExpr").Text())...)
			mount, err := g.mount(mount)
			if err != nil {
				return err
			}
			inj.collectMount(g, &g.volumeMounts, "mountPath", mount)
		}
	}
	if g.share.VolumeDevices {
		for _, device := range it.Text.Get("volumeDevices").Elements() {
			inj.collectMount(g, &g.volumeDevices, "devicePath", device)
		}
	}
	if len(expanded)+len(g.share.Env) == 0 {
		return nil
	}
	// The last of several variables of one name holds.
	var variables []rawjson.Value
	last := make(map[string]int)
	for i, variable := range it.Text.Get("env").Elements() {
		variables = append(variables, variable)
		last[variable.Get("name").Text()] = i
	}
	needed := expandedVariables(expanded, func(name string) rawjson.Value {
		if i, there := last[name]; there {
			return variables[i].Get("value")
		}
		return nil
	})
	for i, variable := range variables {
		name := variable.Get("name").Text()
		if last[name] != i || !needed[name] && !slices.Contains(g.share.Env, "*") && !slices.Contains(g.share.Env, name) {
			continue
		}
		variable, err := qualifyContainer(variable, it.Name)
		if err != nil {
			return err
		}
		other := g.env.add(name, variable)
		if needed[name] {
			g.expanded[name] = true
			if other != nil && !profile.EqualVariable(other, variable) {
				inj.conflict("", inj.in.Profile.DeclineHint(), fmt.Sprintf("the application containers set the environment variable %s to different values, and a subPathExpr uses it that sidecar profile %q shares with container %q",
					podtext.Quote(name), inj.in.Profile.Name, g.share.Container))
			}
		}
	}
	return nil
}

// collectMount adds a mount or device. Two containers that have something else at one
// path are a conflict.
func (inj *injection) collectMount(g *sharedSettings, u *keyedList, key string, value rawjson.Value) {
	path := merge.CleanPath(value.Get(key).Text())
	if other := u.add(path, value); other != nil && !merge.Equal(merge.RemoveMembers(other, key), merge.RemoveMembers(value, key)) {
		inj.conflict("", inj.in.Profile.DeclineHint(), fmt.Sprintf("the application containers have different mounts at %s, which sidecar profile %q shares with container %q",
			podtext.Quote(path), inj.in.Profile.Name, g.share.Container))
	}
}

// mount returns a mount as it is shared: read-only if the profile says so, and without
// Bidirectional propagation, which the API server allows for privileged containers alone.
func (g *sharedSettings) mount(mount rawjson.Value) (rawjson.Value, error) {
	var err error
	if g.share.ReadOnly && !mount.Get("readOnly").IsTrue() {
		if mount, err = merge.SetMember(mount, mount, "readOnly", "true"); err != nil {
			return nil, err
		}
	}
	if !g.privileged && mount.Get("mountPropagation").Is(string(corev1.MountPropagationBidirectional)) {
		return merge.SetMember(mount, mount, "mountPropagation", `"`+string(corev1.MountPropagationHostToContainer)+`"`)
	}
	return mount, nil
}

// qualifyContainer returns a variable for another container: a resourceFieldRef without a
// containerName gets that of its own container.
func qualifyContainer(variable, container rawjson.Value) (rawjson.Value, error) {
	ref := variable.Get("valueFrom", "resourceFieldRef")
	if ref.Kind() != rawjson.Object || ref.Get("containerName").Text() != "" {
		return variable, nil
	}
	return merge.SetMember(variable, ref, "containerName", string(container))
}

// expandedVariables returns the variables and all those that their values expand.
func expandedVariables(names []string, value func(name string) rawjson.Value) map[string]bool {
	all := make(map[string]bool, len(names))
	for len(names) > 0 {
		name := names[len(names)-1]
		names = names[:len(names)-1]
		if !all[name] {
			all[name] = true
			names = append(names, variableNames(value(name).Text())...)
		}
	}
	return all
}

// variableNames returns the names of the environment variables that a subPathExpr, or the
// value of another variable, expands: $(NAME), where $$ stands for $.
func variableNames(text string) []string {
	var all []string
	for i := 0; i+1 < len(text); i++ {
		if text[i] != '$' {
			continue
		}
		switch i++; text[i] {
		case '(':
			end := strings.IndexByte(text[i:], ')')
			if end < 0 {
				return all // There is no end of any other either.
			}
			all = append(all, text[i+1:i+end])
			i += end
		default: // $$, or a $ that stands for itself
		}
	}
	return all
}
