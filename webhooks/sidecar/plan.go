package sidecar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
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
	case !held && pl.earlier != nil && pl.fates[volumes] == nil:
		pl.warn("%s claims that sidecar profile %q was applied, but nothing of it is there: it is applied now", statusField, pl.profile.name)
	case held && pl.earlier.Revision != pl.revision && missing > 0:
		pl.refused = true
		pl.refuse(statusField, "remove the annotation and what it lists from the pod",
			"revision %.64q of sidecar profile %q is in the pod, and lacks something of revision %q, which is in force", pl.earlier.Revision, pl.profile.name, pl.revision)
		return Refused, nil
	case held && pl.earlier.Revision != pl.revision:
		pl.verdict.Detail = fmt.Sprintf("the pod has revision %.64q of sidecar profile %q and is left as it is; revision %q is in force",
			pl.earlier.Revision, pl.profile.name, pl.revision)
		pl.warn("%s", pl.verdict.Detail)
		return AlreadyThere, nil
	}
	if pl.ports {
		if err := pl.checkPorts(); err != nil {
			return "", err
		}
	}
	if len(pl.profile.distinctUsers) > 0 {
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
	for l := range lists {
		if err := pl.insertAll(l); err != nil {
			return "", err
		}
	}
	return Applied, nil
}

// taken tells whether the pod has anything under one of the profile's names.
func (pl *plan) taken() bool {
	for l := range lists {
		for i := range pl.profile.elements[l] {
			name := pl.profile.elements[l][i].name
			if l == volumes {
				if pl.pod.find(volumes, name) >= 0 {
					return true
				}
			} else if _, at := pl.pod.findContainer(name, l); at >= 0 {
				return true
			}
		}
	}
	return false
}

// compare finds the fate of every element of the template, and returns how many
// are missing and whether the pod has anything that an earlier call added.
func (pl *plan) compare() (missing int, held bool) {
	held = pl.earlier != nil && slices.ContainsFunc(pl.earlier.Added, pl.found.found)
	if !pl.taken() {
		for l := range lists {
			missing += len(pl.profile.elements[l])
		}
		return missing, held
	}
	for l := range lists {
		pl.fates[l] = make([]fate, len(pl.profile.elements[l]))
	}
	for l := initContainers; l <= containers; l++ {
		for i := range pl.profile.elements[l] {
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
	for i := range pl.profile.elements[volumes] {
		switch pl.compareVolume(i, before) { //nolint:exhaustive // of the others nothing follows
		case toAdd:
			missing++
		case present:
			held = held || pl.profile.onlyVolumes()
		}
	}
	return missing, held
}

func (pl *plan) compareContainer(l list, i int) what {
	e := &pl.profile.elements[l][i]
	where, at := pl.pod.findContainer(e.name, l)
	f := &pl.fates[l][i]
	if at < 0 {
		return toAdd
	}
	f.index = at
	switch {
	case where == l && pl.earlier.claims(l, e.name):
		f.what = present
		if e.native && !pl.pod.item(pl.pod.lists[l].from+at).native && !slices.Contains(pl.earlier.Merged, e.name) {
			pl.warn("init container %q of sidecar profile %q has lost restartPolicy: Always, and the pod will not start: another webhook that does not know the field has removed it", e.name, pl.profile.name)
		}
	case where == l && pl.profile.onSameName == v1alpha1.KeepSameName:
		f.what = merged
	case where == l && pl.profile.onSameName == v1alpha1.ReplaceSameName:
		f.what = replaced
	default:
		pl.refused = true
		pl.verdict.Detail = "the pod has a container of a name that it adds"
		pl.refuse(fmt.Sprintf("spec.%s[%d].name", where, at), "rename it, or "+pl.profile.declineHint(),
			"%q is the name of a container that sidecar profile %q adds", e.name, pl.profile.name)
	}
	return f.what
}

func (pl *plan) compareVolume(i int, held bool) what {
	e := &pl.profile.elements[volumes][i]
	at := pl.pod.find(volumes, e.name)
	if at < 0 {
		return toAdd
	}
	f := &pl.fates[volumes][i]
	f.what, f.index = reused, at
	claimed := pl.earlier.claims(volumes, e.name)
	switch {
	// Only beside something else of ours is a volume that is not equal, or no
	// longer, believed to be ours.
	case held && claimed, equalVolume(pl.elements[volumes][i].volume, pl.pod.item(pl.pod.lists[volumes].from+at).text):
		if (held || pl.profile.onlyVolumes()) && pl.earlier != nil && slices.Contains(pl.earlier.Volumes, e.name) {
			f.what = present
		}
	default:
		pl.conflict(fmt.Sprintf("spec.volumes[%d].name", at), "rename it, or "+pl.profile.declineHint()+"; an equal volume would be used as it is",
			fmt.Sprintf("%q is the name of a volume that sidecar profile %q adds, and is not equal to it", e.name, pl.profile.name))
	}
	return f.what
}

// mergeFields merges what the template says about the pod itself.
func (pl *plan) mergeFields() error {
	if pl.metadata != nil {
		root := rawjson.Value(bytes.TrimSpace(pl.text))
		if err := pl.merger.member(place{}.member("metadata"), root, "metadata", pl.metadata, nil); err != nil {
			return err
		}
	}
	if pl.spec == nil {
		return nil
	}
	return pl.merger.object(place{}.member("spec"), pl.pod.spec, pl.spec, podRules)
}

// mergeContainers merges the template's containers into those of the pod that
// have their names, or puts them in their place.
func (pl *plan) mergeContainers() error {
	for l := initContainers; l <= containers; l++ {
		for i := range pl.fates[l] {
			f := &pl.fates[l][i]
			if f.what != merged && f.what != replaced {
				continue
			}
			raw := pl.elements[l][i].raw
			if f.raw != nil {
				raw = f.raw
			}
			it := pl.pod.item(pl.pod.lists[l].from + f.index)
			own := it.text
			at := place{}.member("spec").member(l.String()).element(f.index, named(pl.profile.elements[l][i].name))
			if f.what == replaced {
				pl.made.original(at.trail, json.RawMessage(bytes.Clone(own)))
				if err := pl.pending.replace(at.pointer, own, raw); err != nil {
					return err
				}
				continue
			}
			template := pl.unarmored(it.name.Text(), rawjson.Value(raw))
			if policy := own.Get("restartPolicy"); pl.profile.elements[l][i].native && !it.native && policy.Kind() == rawjson.String {
				pl.keeps(at.member("restartPolicy").path, fmt.Sprintf("the pod has %s, and the profile says %q", brief(policy), corev1.ContainerRestartPolicyAlways))
				template = without(template, "restartPolicy", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
			}
			kept := pl.merger.kept
			pl.merger.kept = func(path, message string) { pl.verdict.step("same name", "kept", path+": "+message) }
			pl.merger.clash = kept
			err := pl.merger.object(at, own, template, containerRules)
			pl.merger.kept, pl.merger.clash = kept, nil
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// added tells whether a profile has added the container, now or before. What
// only its status claims of a container that it does not add is not believed.
func (m *maker) added(l list, name string) bool {
	if m.status != nil {
		return m.claims().added[l][name]
	}
	for i := range m.now.Profiles {
		if m.now.Profiles[i].claims(l, name) {
			return true
		}
	}
	return false
}

// isApp tells whether a container is the pod's own: none that a profile has
// added, or merges with or puts in the place of one of the pod's, in this
// decision or whenever it comes.
func (pl *plan) isApp(l list, name string) bool {
	if name == "" || pl.added(l, name) {
		return false
	}
	for i, k := range pl.about {
		switch pl.Verdicts[i].Reason { //nolint:exhaustive // the others are not applied
		case "", Applied, AlreadyThere:
			if slices.ContainsFunc(pl.set.profiles[k].elements[l], func(e element) bool { return e.name == name }) {
				return false
			}
		}
	}
	return true
}

// addToApp adds what the profile says to the pod's own containers.
func (pl *plan) addToApp() error {
	for i := range pl.profile.app {
		a := &pl.profile.app[i]
		if i > 0 {
			// Two additions can be about one container.
			if err := pl.advance(); err != nil {
				return err
			}
		}
		for l := initContainers; l <= containers; l++ {
			if l == initContainers && !a.InitContainers {
				continue
			}
			for k := pl.pod.lists[l].from; k < pl.pod.lists[l].to; k++ {
				it := pl.pod.item(k)
				name := it.name.Text()
				if !pl.isApp(l, name) || len(a.Names) > 0 && !slices.Contains(a.Names, name) || slices.Contains(a.Except, name) {
					continue
				}
				at := place{}.member("spec").member(l.String()).element(k-pl.pod.lists[l].from, named(name))
				template, err := pl.freeHostPorts(l, it, pl.unarmored(name, pl.app[i]))
				if err != nil {
					return err
				}
				if err := pl.addTo(at, it.text, template); err != nil {
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
func (pl *plan) addTo(at place, own, template rawjson.Value) error {
	kept := pl.merger.kept
	pl.merger.clash = kept
	defer func() { pl.merger.kept, pl.merger.clash = kept, nil }()
	for nameText, value := range template.Members() {
		name := nameText.Text()
		pl.merger.kept = kept
		if name != "volumeMounts" && name != "volumeDevices" {
			pl.merger.kept = func(path, message string) { pl.verdict.step("app container", "kept", path+": "+message) }
		}
		if err := pl.merger.member(at.member(name), own, name, value, containerRules.field(name)); err != nil {
			return err
		}
	}
	return nil
}

// insertAll adds the elements of one list that are missing.
func (pl *plan) insertAll(l list) error {
	elements := pl.profile.elements[l]
	if len(elements) == 0 {
		return nil
	}
	own := pl.pod.lists[l].text
	if own.Kind() != rawjson.Array {
		value := pl.arrays[l]
		if pl.fates[l] != nil {
			value = pl.array(l)
		}
		pl.made.make(l.path(), own)
		if own.Kind() == rawjson.Null {
			return pl.pending.replace(l.path(), own, value)
		}
		return pl.pending.add(l.path(), pl.pod.spec, l.String(), value)
	}
	length := pl.pod.lists[l].to - pl.pod.lists[l].from
	next, added := pl.position(l, length), 0
	for i := range elements {
		f := pl.fate(l, i)
		if f.what != toAdd {
			if pl.profile.first[l] {
				next = max(next, f.index+1)
			}
			continue
		}
		value := pl.elements[l][i].value
		if f.raw != nil {
			value = json.RawMessage(f.raw)
		}
		var err error
		if next >= length {
			err = pl.pending.push(l.end(), own, value)
		} else {
			err = pl.pending.insert(l.path(), next+added, pl.pod.item(pl.pod.lists[l].from+next).text, value)
		}
		if err != nil {
			return err
		}
		added++
	}
	return nil
}

// array is a list that the pod does not have.
func (pl *plan) array(l list) json.RawMessage {
	parts := slices.Clone(pl.elements[l])
	for i := range parts {
		if raw := pl.fates[l][i].raw; raw != nil {
			parts[i].raw = raw
		}
	}
	return array(parts)
}

// position is the index at which the profile's elements begin: in front of the
// pod's own or behind them, and among those of other profiles in their order.
func (pl *plan) position(l list, length int) int {
	first := pl.profile.first[l]
	at := length
	if first {
		at = 0
	}
	if l == volumes || pl.status == nil && len(pl.now.Profiles) == 0 {
		return at
	}
	mine := pl.set.rank(pl.profile.name)
	for i := range length {
		owner, ok := pl.owner(l, pl.pod.item(pl.pod.lists[l].from+i).name.Text())
		if !ok || pl.set.profiles[pl.set.byName[owner]].first[l] != first {
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
func (m *maker) owner(l list, name string) (string, bool) {
	if m.status != nil {
		owner, ok := m.claims().owners[l][name]
		return owner, ok
	}
	for i := range m.now.Profiles {
		if e := &m.now.Profiles[i]; e.adds(l, name) {
			return e.Name, true
		}
	}
	return "", false
}

// record notes what the profile has added, now and before.
func (pl *plan) record() {
	e := entry{Name: pl.profile.name, Revision: pl.revision, Added: pl.merger.added}
	for l := range lists {
		if pl.fates[l] == nil {
			*e.list(l) = pl.profile.names[l]
			continue
		}
		for i, name := range pl.profile.names[l] {
			switch f := pl.fate(l, i); {
			case f.what == reused:
				e.Reused = append(e.Reused, name)
			case f.what == merged || f.what == present && slices.Contains(pl.earlier.Merged, name):
				e.Merged = append(e.Merged, name)
			case f.what == replaced || f.what == present && slices.Contains(pl.earlier.Replaced, name):
				e.Replaced = append(e.Replaced, name)
			default:
				*e.list(l) = append(*e.list(l), name)
			}
		}
	}
	if pl.earlier != nil {
		now := make(map[string]bool, len(e.Added))
		for _, trail := range e.Added {
			now[trail] = true
		}
		for _, trail := range pl.earlier.Added {
			if !now[trail] && pl.found.found(trail) {
				e.Added = append(e.Added, trail)
			}
		}
		// Whatever the annotation claims decides what is the pod's own, so a
		// claim that went would change the next decision.
		there := pl.earlier.prune(pl.found, pl.pod.names())
		for l := range lists {
			earlier := *there.list(l)
			if len(earlier) == 0 {
				continue
			}
			claimed := e.claimed(l)
			*e.list(l) = slices.Clone(*e.list(l)) // it may be the profile's own
			for _, name := range earlier {
				if !claimed[name] {
					claimed[name] = true
					*e.list(l) = append(*e.list(l), name)
				}
			}
		}
	}
	pl.now.Profiles = append(pl.now.Profiles, e)
	pl.now.Created = append(pl.now.Created, pl.made.Created...)
	for trail, original := range pl.made.Originals {
		pl.now.original(trail, original)
	}
	if x := pl.verdict.Explanation; x != nil {
		for l, names := range map[list][]string{initContainers: e.InitContainers, containers: e.Containers, volumes: e.Volumes} {
			for _, name := range names {
				x.Adds = append(x.Adds, "/spec/"+l.String()+"/"+named(name))
			}
		}
		slices.Sort(x.Adds)
		x.Adds = append(x.Adds, e.Added...)
	}
}
