package inject

import (
	"fmt"
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
	f := inj.action(l, k)
	var own []rawjson.Value
	if f.kind == mergeInto || f.isThere() {
		own = append(own, inj.now.Pod.Element(inj.now.Pod.Lists[l].From+f.index).Text)
	}
	switch {
	case f.isThere():
	case f.raw != nil: // another share has been at it
		own = append(own, f.raw)
	default:
		own = append(own, rawjson.Value(inj.in.Rendered.Elements[l][k].Raw))
	}
	shared, err := inj.sharedSettings(s, inj.isPrivileged(l, k), inj.in.Rendered.Elements[l][k].Raw, own...)
	if err != nil || shared == nil {
		return err
	}
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
	merged := inj.in.Earlier != nil && slices.Contains(inj.in.Earlier.Merged, s.Container)
	if merged {
		// The container is the pod's, and stays when what was added goes.
		m.Record, m.Earlier = &inj.record, inj.earlierPaths
	}
	at := merge.Path{}.Member("spec").Member(l.String()).Element(f.index, merge.NameKey(s.Container))
	err = m.Object(at, inj.now.Pod.Element(inj.now.Pod.Lists[l].From+f.index).Text, shared, merge.ContainerRules)
	if merged {
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

type sharedSettings struct {
	share      *v1alpha1.SidecarShare
	privileged bool
	// lists are written in this order.
	env, volumeDevices, volumeMounts keyedList
	// own are the variables that the container has itself, and template those that the template
	// gives it.
	own, template map[string]rawjson.Value
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

// sharedSettings returns what is shared, as a partial container, or nil. Own are the texts of
// the container that gets it; the first that sets a variable holds.
func (inj *injection) sharedSettings(s *v1alpha1.SidecarShare, privileged bool, template []byte, own ...rawjson.Value) (rawjson.Value, error) {
	g := sharedSettings{share: s, privileged: privileged, own: make(map[string]rawjson.Value), template: make(map[string]rawjson.Value)}
	for _, variable := range rawjson.Value(template).Get("env").Elements() {
		g.template[variable.Get("name").Text()] = variable
	}
	for _, container := range slices.Backward(own) {
		for _, variable := range container.Get("env").Elements() {
			g.own[variable.Get("name").Text()] = variable
		}
	}
	// Additions of profiles to the pod's own containers are not shared: whether it is
	// there already would depend on their order and on the number of calls.
	from := inj.in.First.Lists[podtext.Containers]
	for i := from.From; i < from.To; i++ {
		it := inj.in.First.Element(i)
		if name := it.Name.Text(); !inj.in.Owners.IsApp(podtext.Containers, name) || len(s.From) > 0 && !slices.Contains(s.From, name) {
			continue
		}
		if err := inj.collect(&g, it); err != nil {
			return nil, err
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
		return nil, nil
	}
	dst[0] = '{'
	return append(dst, '}'), nil
}

func (inj *injection) collect(g *sharedSettings, it *podtext.Element) error {
	env := readEnvironment(it.Text)
	needed := make([]bool, len(env.variables))
	if g.share.VolumeMounts {
		for _, mount := range it.Text.Get("volumeMounts").Elements() {
			path := merge.CleanPath(mount.Get("mountPath").Text())
			if path == defaults.TokenMount {
				continue
			}
			expands, unset := env.resolve(mount.Get("subPathExpr").Text())
			if !inj.isComplete(g, env, it, unset, "the subPathExpr of the mount at "+podtext.Quote(path)) {
				continue
			}
			env.need(needed, expands)
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
	shared := make([]bool, len(env.variables))
	for i := range env.variables {
		v := &env.variables[i]
		if env.last[v.name] != i || !slices.Contains(g.share.Env, "*") && !slices.Contains(g.share.Env, v.name) {
			continue
		}
		_, taken := g.env.at[v.name]
		if own := g.own[v.name]; taken || own != nil && !profile.EqualVariable(own, v.text) {
			shared[i] = true // with another value, which refers to nothing of this container
		} else if shared[i] = inj.isComplete(g, env, it, v.unset, "the environment variable "+podtext.Quote(v.name)); shared[i] {
			env.need(needed, v.expands)
		}
	}
	for i := range env.variables {
		v := &env.variables[i]
		if !shared[i] && !needed[i] {
			continue
		}
		text, err := qualifyContainer(v.text, it.Name)
		if err != nil {
			return err
		}
		other := g.env.add(v.name, text)
		if !needed[i] {
			continue
		}
		if env.last[v.name] != i || other != nil && !profile.EqualVariable(other, text) {
			inj.conflict("", inj.in.Profile.DeclineHint(), fmt.Sprintf("the application containers set the environment variable %s to different values, and a value refers to it that sidecar profile %q shares with container %q",
				podtext.Quote(v.name), inj.in.Profile.Name, g.share.Container))
		}
		if own := g.own[v.name]; own != nil && !profile.EqualVariable(own, text) {
			inj.conflict("", inj.in.Profile.DeclineHint(), fmt.Sprintf("container %q of sidecar profile %q sets the environment variable %s to another value than the application containers, and a shared value refers to it",
				g.share.Container, inj.in.Profile.Name, podtext.Quote(v.name)))
		}
	}
	return nil
}

// isComplete reports whether a value can mean the same in the container that gets it although it
// refers to variables that env does not set. Those of envFrom are not known. Without envFrom they
// are plain text, which they are not in a container that sets them.
func (inj *injection) isComplete(g *sharedSettings, env *environment, it *podtext.Element, unset []string, what string) bool {
	for _, name := range unset {
		_, shared := g.env.at[name]
		where := "its env does not set, and its envFrom may"
		switch {
		case env.isOpen:
		case shared || g.template[name] != nil: // and not own, which after an earlier call has what is shared
			where = fmt.Sprintf("only container %q gets", g.share.Container)
		default:
			continue
		}
		inj.conflict("", "set the variable in env of the container, or "+inj.in.Profile.DeclineHint(),
			fmt.Sprintf("%s of container %q, which sidecar profile %q shares with container %q, refers to the environment variable %s, which %s",
				what, it.Name.Text(), inj.in.Profile.Name, g.share.Container, podtext.Quote(name), where))
		return false
	}
	return true
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

// environment is the env of a container.
type environment struct {
	variables []variable
	// last is the index of the variable of a name that holds.
	last map[string]int
	// isOpen is true if variables come from elsewhere, too.
	isOpen bool
}

type variable struct {
	name string
	text rawjson.Value
	// expands are the variables that its value expands, which come before it.
	expands []int
	// unset are the names that its value refers to, directly or not, without a variable before it. Of many,
	// some are enough.
	unset []string
}

func readEnvironment(container rawjson.Value) *environment {
	env := &environment{last: make(map[string]int), isOpen: container.Get("envFrom").Len() > 0}
	for i, text := range container.Get("env").Elements() {
		v := variable{name: text.Get("name").Text(), text: text}
		v.expands, v.unset = env.resolve(text.Get("value").Text())
		env.variables = append(env.variables, v)
		env.last[v.name] = i
	}
	return env
}

// resolve returns what a text refers to: variables so far, and names that none has.
func (env *environment) resolve(text string) (expands []int, unset []string) {
	const most = 8 // names, of which each variable would pass on those of all that it expands
	for _, name := range variableNames(text) {
		var missing []string
		if i, there := env.last[name]; there {
			expands, missing = append(expands, i), env.variables[i].unset
		} else {
			missing = []string{name}
		}
		unset = append(unset, missing[:min(len(missing), most-len(unset))]...)
	}
	return expands, unset
}

// need marks variables and all those that their values expand.
func (env *environment) need(needed []bool, indexes []int) {
	for len(indexes) > 0 {
		i := indexes[len(indexes)-1]
		indexes = indexes[:len(indexes)-1]
		if !needed[i] {
			needed[i] = true
			indexes = append(indexes, env.variables[i].expands...)
		}
	}
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
