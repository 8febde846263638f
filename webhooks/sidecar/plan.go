package sidecar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/status"
)

// make compares the profile with what is in the pod, and makes the changes.
//
// A name that is taken is the profile's own only if the status annotation says
// so: then it is left as it is, for others may have changed it since. The
// annotation alone counts for nothing, since a pod can come with any: what it
// claims and is not there is added. Of two revisions of one profile in one pod,
// however, nobody could say how they work together.
func (pl *plan) make() (Reason, error) {
	missing, held := pl.compare()
	switch {
	case !held && pl.earlier != nil && pl.fates[podtext.Volumes] == nil:
		pl.warn("%s claims that sidecar profile %q was applied, but nothing of it is there: it is applied now", status.Field, pl.profile.Name)
	case held && pl.earlier.Revision != pl.Revision && missing > 0:
		pl.refused = true
		pl.refuse(status.Field, "remove the annotation and what it lists from the pod",
			"revision %.64q of sidecar profile %q is in the pod, and lacks something of revision %q, which is in force", pl.earlier.Revision, pl.profile.Name, pl.Revision)
		return Refused, nil
	case held && pl.earlier.Revision != pl.Revision:
		pl.verdict.Detail = fmt.Sprintf("the pod has revision %.64q of sidecar profile %q and is left as it is; revision %q is in force",
			pl.earlier.Revision, pl.profile.Name, pl.Revision)
		pl.warn("%s", pl.verdict.Detail)
		return AlreadyThere, nil
	}
	if pl.HasPorts {
		if err := pl.checkPorts(); err != nil {
			return "", err
		}
	}
	if len(pl.profile.DistinctUsers) > 0 {
		pl.checkUsers()
	}
	if err := pl.mergeFields(); err != nil {
		return "", err
	}
	if err := pl.shareAll(); err != nil {
		return "", err
	}
	if err := pl.mergeContainers(); err != nil {
		return "", err
	}
	if err := pl.addToApp(); err != nil {
		return "", err
	}
	if pl.refused || len(pl.conflicts) > 0 {
		return Refused, nil // Only now all that is wrong with the pod is known.
	}
	for l := range podtext.NumLists {
		if err := pl.insertAll(l); err != nil {
			return "", err
		}
	}
	return Applied, nil
}

// taken tells whether the pod has anything under one of the profile's names.
func (pl *plan) taken() bool {
	for l := range podtext.NumLists {
		for i := range pl.profile.Elements[l] {
			name := pl.profile.Elements[l][i].Name
			if l == podtext.Volumes {
				if pl.pod.Find(podtext.Volumes, name) >= 0 {
					return true
				}
			} else if _, at := pl.pod.FindContainer(name, l); at >= 0 {
				return true
			}
		}
	}
	return false
}

// compare finds the fate of every element of the template, and returns how many
// are missing and whether the pod has anything that an earlier call added.
func (pl *plan) compare() (missing int, held bool) {
	held = pl.earlier != nil && slices.ContainsFunc(pl.earlier.Added, pl.found.Found)
	if !pl.taken() {
		for l := range podtext.NumLists {
			missing += len(pl.profile.Elements[l])
		}
		return missing, held
	}
	for l := range podtext.NumLists {
		pl.fates[l] = make([]fate, len(pl.profile.Elements[l]))
	}
	for l := podtext.InitContainers; l <= podtext.Containers; l++ {
		for i := range pl.profile.Elements[l] {
			switch pl.compareContainer(l, i) {
			case toAdd:
				missing++
			case present:
				held = true
			case reused, merged, replaced:
			}
		}
	}
	before := held
	for i := range pl.profile.Elements[podtext.Volumes] {
		switch pl.compareVolume(i, before) { //nolint:exhaustive // of the others nothing follows
		case toAdd:
			missing++
		case present:
			held = held || pl.profile.HasOnlyVolumes()
		}
	}
	return missing, held
}

func (pl *plan) compareContainer(l podtext.List, i int) what {
	e := &pl.profile.Elements[l][i]
	where, at := pl.pod.FindContainer(e.Name, l)
	f := &pl.fates[l][i]
	if at < 0 {
		return toAdd
	}
	f.index = at
	switch {
	case where == l && pl.earlier.Lists(l, e.Name):
		f.what = present
		if e.IsNative && !pl.pod.Element(pl.pod.Lists[l].From+at).IsNative && !slices.Contains(pl.earlier.Merged, e.Name) {
			pl.warn("init container %q of sidecar profile %q has lost restartPolicy: Always, and the pod will not start: another webhook that does not know the field has removed it", e.Name, pl.profile.Name)
		}
	case where == l && pl.profile.OnSameName == v1alpha1.KeepSameName:
		f.what = merged
	case where == l && pl.profile.OnSameName == v1alpha1.ReplaceSameName:
		f.what = replaced
	default:
		pl.refused = true
		pl.verdict.Detail = "the pod has a container of a name that it adds"
		pl.refuse(fmt.Sprintf("spec.%s[%d].name", where, at), "rename it, or "+pl.profile.DeclineHint(),
			"%q is the name of a container that sidecar profile %q adds", e.Name, pl.profile.Name)
	}
	return f.what
}

func (pl *plan) compareVolume(i int, held bool) what {
	e := &pl.profile.Elements[podtext.Volumes][i]
	at := pl.pod.Find(podtext.Volumes, e.Name)
	if at < 0 {
		return toAdd
	}
	f := &pl.fates[podtext.Volumes][i]
	f.what, f.index = reused, at
	claimed := pl.earlier.Lists(podtext.Volumes, e.Name)
	switch {
	// Only beside something else of ours is a volume that is not equal, or no
	// longer, believed to be ours.
	case held && claimed, profile.EqualVolume(pl.Elements[podtext.Volumes][i].Volume, pl.pod.Element(pl.pod.Lists[podtext.Volumes].From+at).Text):
		if (held || pl.profile.HasOnlyVolumes()) && pl.earlier != nil && slices.Contains(pl.earlier.Volumes, e.Name) {
			f.what = present
		}
	default:
		pl.conflict(fmt.Sprintf("spec.volumes[%d].name", at), "rename it, or "+pl.profile.DeclineHint()+"; an equal volume would be used as it is",
			fmt.Sprintf("%q is the name of a volume that sidecar profile %q adds, and is not equal to it", e.Name, pl.profile.Name))
	}
	return f.what
}

// mergeFields merges what the template says about the pod itself.
func (pl *plan) mergeFields() error {
	if pl.Metadata != nil {
		root := rawjson.Value(bytes.TrimSpace(pl.text))
		if err := pl.merger.Member(merge.Path{}.Member("metadata"), root, "metadata", pl.Metadata, nil); err != nil {
			return err
		}
	}
	if pl.Spec == nil {
		return nil
	}
	return pl.merger.Object(merge.Path{}.Member("spec"), pl.pod.Spec, pl.Spec, merge.PodRules)
}

// mergeContainers merges the template's containers into those of the pod that
// have their names, or puts them in their place.
func (pl *plan) mergeContainers() error {
	for l := podtext.InitContainers; l <= podtext.Containers; l++ {
		for i := range pl.fates[l] {
			f := &pl.fates[l][i]
			if f.what != merged && f.what != replaced {
				continue
			}
			raw := pl.Elements[l][i].Raw
			if f.raw != nil {
				raw = f.raw
			}
			it := pl.pod.Element(pl.pod.Lists[l].From + f.index)
			own := it.Text
			at := merge.Path{}.Member("spec").Member(l.String()).Element(f.index, merge.NameKey(pl.profile.Elements[l][i].Name))
			if f.what == replaced {
				pl.made.NoteOriginal(at.FieldPath, json.RawMessage(bytes.Clone(own)))
				if err := pl.pending.Replace(at.Pointer, own, raw); err != nil {
					return err
				}
				continue
			}
			template := pl.unarmored(it.Name.Text(), rawjson.Value(raw))
			if policy := own.Get("restartPolicy"); pl.profile.Elements[l][i].IsNative && !it.IsNative && policy.Kind() == rawjson.String {
				pl.keeps(at.Member("restartPolicy").Display, fmt.Sprintf("the pod has %s, and the profile says %q", merge.Describe(policy), corev1.ContainerRestartPolicyAlways))
				template = merge.RemoveMembers(template, "restartPolicy", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
			}
			kept := pl.merger.OnConflict
			pl.merger.OnConflict = func(path, message string) { pl.verdict.step("same name", "kept", path+": "+message) }
			pl.merger.OnClash = kept
			err := pl.merger.Object(at, own, template, merge.ContainerRules)
			pl.merger.OnConflict, pl.merger.OnClash = kept, nil
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// added tells whether a profile has added the container, now or before. What
// only its status claims of a container that it does not add is not believed.
func (m *maker) added(l podtext.List, name string) bool {
	if m.status != nil {
		return m.claims().added[l][name]
	}
	for i := range m.now.Profiles {
		if m.now.Profiles[i].Lists(l, name) {
			return true
		}
	}
	return false
}

// isApp tells whether a container is the pod's own: none that a profile has
// added, or merges with or puts in the place of one of the pod's, in this
// decision or whenever it comes.
func (pl *plan) isApp(l podtext.List, name string) bool {
	if name == "" || pl.added(l, name) {
		return false
	}
	for i, k := range pl.about {
		switch pl.Verdicts[i].Reason { //nolint:exhaustive // the others are not applied
		case "", Applied, AlreadyThere:
			if slices.ContainsFunc(pl.set.profiles[k].Elements[l], func(e profile.Element) bool { return e.Name == name }) {
				return false
			}
		}
	}
	return true
}

// addToApp adds what the profile says to the pod's own containers.
func (pl *plan) addToApp() error {
	for i := range pl.profile.Additions {
		a := &pl.profile.Additions[i]
		if i > 0 {
			// Two additions can be about one container.
			if err := pl.advance(); err != nil {
				return err
			}
		}
		for l := podtext.InitContainers; l <= podtext.Containers; l++ {
			if l == podtext.InitContainers && !a.InitContainers {
				continue
			}
			for k := pl.pod.Lists[l].From; k < pl.pod.Lists[l].To; k++ {
				it := pl.pod.Element(k)
				name := it.Name.Text()
				if !pl.isApp(l, name) || len(a.Names) > 0 && !slices.Contains(a.Names, name) || slices.Contains(a.Except, name) {
					continue
				}
				at := merge.Path{}.Member("spec").Member(l.String()).Element(k-pl.pod.Lists[l].From, merge.NameKey(name))
				template, err := pl.freeHostPorts(l, it, pl.unarmored(name, pl.App[i]))
				if err != nil {
					return err
				}
				if err := pl.addTo(at, it.Text, template); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// addTo adds to one of the pod's own containers. An environment variable that it
// has is its own business; a path where something else is mounted is not, nor is
// the name of a port.
func (pl *plan) addTo(at merge.Path, own, template rawjson.Value) error {
	kept := pl.merger.OnConflict
	pl.merger.OnClash = kept
	defer func() { pl.merger.OnConflict, pl.merger.OnClash = kept, nil }()
	for nameText, value := range template.Members() {
		name := nameText.Text()
		pl.merger.OnConflict = kept
		if name != "volumeMounts" && name != "volumeDevices" {
			pl.merger.OnConflict = func(path, message string) { pl.verdict.step("app container", "kept", path+": "+message) }
		}
		if err := pl.merger.Member(at.Member(name), own, name, value, merge.ContainerRules.Field(name)); err != nil {
			return err
		}
	}
	return nil
}

// insertAll adds the elements of one list that are missing.
func (pl *plan) insertAll(l podtext.List) error {
	elements := pl.profile.Elements[l]
	if len(elements) == 0 {
		return nil
	}
	own := pl.pod.Lists[l].Text
	if own.Kind() != rawjson.Array {
		value := pl.Arrays[l]
		if pl.fates[l] != nil {
			value = pl.array(l)
		}
		pl.made.NoteCreated(l.Pointer(), own)
		if own.Kind() == rawjson.Null {
			return pl.pending.Replace(l.Pointer(), own, value)
		}
		return pl.pending.Add(l.Pointer(), pl.pod.Spec, l.String(), value)
	}
	length := pl.pod.Lists[l].To - pl.pod.Lists[l].From
	next, added := pl.position(l, length), 0
	for i := range elements {
		f := pl.fate(l, i)
		if f.what != toAdd {
			if pl.profile.First[l] {
				next = max(next, f.index+1)
			}
			continue
		}
		value := pl.Elements[l][i].Value
		if f.raw != nil {
			value = json.RawMessage(f.raw)
		}
		var err error
		if next >= length {
			err = pl.pending.Push(l.EndPointer(), own, value)
		} else {
			err = pl.pending.Insert(l.Pointer(), next+added, pl.pod.Element(pl.pod.Lists[l].From+next).Text, value)
		}
		if err != nil {
			return err
		}
		added++
	}
	return nil
}

// array is a list that the pod does not have.
func (pl *plan) array(l podtext.List) json.RawMessage {
	parts := slices.Clone(pl.Elements[l])
	for i := range parts {
		if raw := pl.fates[l][i].raw; raw != nil {
			parts[i].Raw = raw
		}
	}
	return profile.Array(parts)
}

// position is the index at which the profile's elements begin: in front of the
// pod's own or behind them, and among those of other profiles in their order.
func (pl *plan) position(l podtext.List, length int) int {
	first := pl.profile.First[l]
	at := length
	if first {
		at = 0
	}
	if l == podtext.Volumes || pl.status == nil && len(pl.now.Profiles) == 0 {
		return at
	}
	mine := pl.set.rank(pl.profile.Name)
	for i := range length {
		owner, ok := pl.owner(l, pl.pod.Element(pl.pod.Lists[l].From+i).Name.Text())
		if !ok || pl.set.profiles[pl.set.byName[owner]].First[l] != first {
			continue
		}
		switch rank := pl.set.rank(owner); {
		case first && rank < mine:
			at = i + 1
		case !first && rank > mine:
			return i
		}
	}
	return at
}

func (s *Set) rank(name string) int { return s.ranks[s.byName[name]] }

// owner is the profile, of this set, that has added a container.
func (m *maker) owner(l podtext.List, name string) (string, bool) {
	if m.status != nil {
		owner, ok := m.claims().owners[l][name]
		return owner, ok
	}
	for i := range m.now.Profiles {
		if e := &m.now.Profiles[i]; e.AddsContainer(l, name) {
			return e.Name, true
		}
	}
	return "", false
}

// record notes what the profile has added, now and before.
func (pl *plan) record() {
	e := status.Entry{Name: pl.profile.Name, Revision: pl.Revision, Added: pl.merger.Added}
	for l := range podtext.NumLists {
		if pl.fates[l] == nil {
			*e.List(l) = pl.profile.Names[l]
			continue
		}
		for i, name := range pl.profile.Names[l] {
			switch f := pl.fate(l, i); {
			case f.what == reused:
				e.Reused = append(e.Reused, name)
			case f.what == merged || f.what == present && slices.Contains(pl.earlier.Merged, name):
				e.Merged = append(e.Merged, name)
			case f.what == replaced || f.what == present && slices.Contains(pl.earlier.Replaced, name):
				e.Replaced = append(e.Replaced, name)
			default:
				*e.List(l) = append(*e.List(l), name)
			}
		}
	}
	if pl.earlier != nil {
		now := make(map[string]bool, len(e.Added))
		for _, trail := range e.Added {
			now[trail] = true
		}
		for _, trail := range pl.earlier.Added {
			if !now[trail] && pl.found.Found(trail) {
				e.Added = append(e.Added, trail)
			}
		}
		// Whatever the annotation claims decides what is the pod's own, so a
		// claim that went would change the next decision.
		there := pl.earlier.Prune(pl.found, pl.pod.Names())
		for l := range podtext.NumLists {
			earlier := *there.List(l)
			if len(earlier) == 0 {
				continue
			}
			claimed := e.Names(l)
			*e.List(l) = slices.Clone(*e.List(l)) // it may be the profile's own
			for _, name := range earlier {
				if !claimed[name] {
					claimed[name] = true
					*e.List(l) = append(*e.List(l), name)
				}
			}
		}
	}
	pl.now.Profiles = append(pl.now.Profiles, e)
	pl.now.Created = append(pl.now.Created, pl.made.Created...)
	for trail, original := range pl.made.Originals {
		pl.now.NoteOriginal(trail, original)
	}
	if x := pl.verdict.Explanation; x != nil {
		for l, names := range map[podtext.List][]string{podtext.InitContainers: e.InitContainers, podtext.Containers: e.Containers, podtext.Volumes: e.Volumes} {
			for _, name := range names {
				x.Adds = append(x.Adds, "/spec/"+l.String()+"/"+merge.NameKey(name))
			}
		}
		slices.Sort(x.Adds)
		x.Adds = append(x.Adds, e.Added...)
	}
}
