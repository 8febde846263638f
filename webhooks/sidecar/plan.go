package sidecar

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// plan is what one profile does to a pod.
type plan struct {
	profile *profile
	reason  Reason
	// fates are those of the elements of each list. They are nil if all are to
	// be added.
	fates [lists][]fate
}

// whole tells whether everything that the profile adds is to be added.
func (p *plan) whole() bool { return p.reason == Applied && p.fates[initContainers] == nil }

// fate is what becomes of one element of a template.
type fate struct {
	what what
	// index is where a present element is in the pod's list.
	index int
}

type what uint8

const (
	toAdd what = iota
	// present: an earlier call added it.
	present
	// reused: the pod has an equal volume of its own.
	reused
)

func (p *plan) fate(l list, i int) fate {
	if p.fates[l] == nil {
		return fate{}
	}
	return p.fates[l][i]
}

const (
	declineHint = `decline injection with the annotation ` + v1alpha1.InjectAnnotation + `: "false"`
	renameHint  = `rename it, or ` + declineHint
)

// plan compares a profile with what is in the pod.
//
// A name that is taken is the profile's own only if the status annotation says
// so: then it is left as it is, for others may have changed it since. The
// annotation alone counts for nothing, since a pod can come with any: what it
// claims and is not there is added. Of two revisions of one profile in one pod,
// however, nobody could say how they work together.
func (d *Decision) plan(p *pod, profile *profile, earlier *entry) (plan, error) {
	made := plan{profile: profile, reason: Applied}
	if p.taken(profile) {
		d.compare(p, &made, earlier)
	} else if earlier != nil {
		d.warn("%s claims that sidecar profile %q was applied, but nothing of it is there: it is applied now", statusField, profile.name)
	}
	if made.reason != Applied || !profile.ports {
		return made, nil
	}
	return made, d.checkPorts(p, &made)
}

// taken tells whether the pod has anything under one of the profile's names.
func (p *pod) taken(profile *profile) bool {
	for l := range lists {
		for i := range profile.elements[l] {
			name := profile.elements[l][i].name
			if l == volumes {
				if p.find(volumes, name) >= 0 {
					return true
				}
			} else if _, at := p.findContainer(name, l); at >= 0 {
				return true
			}
		}
	}
	return false
}

// findContainer looks for a container of any sort, first in one list.
func (p *pod) findContainer(name string, first list) (list, int) {
	if at := p.find(first, name); at >= 0 {
		return first, at
	}
	for _, l := range [...]list{initContainers, containers, ephemeralContainers} {
		if at := p.find(l, name); at >= 0 {
			return l, at
		}
	}
	return first, -1
}

func (d *Decision) compare(p *pod, made *plan, earlier *entry) {
	profile := made.profile
	var missing, ours, refused int
	for l := range lists {
		made.fates[l] = make([]fate, len(profile.elements[l]))
	}
	for l := initContainers; l <= containers; l++ {
		for i := range profile.elements[l] {
			name := profile.elements[l][i].name
			where, at := p.findContainer(name, l)
			switch {
			case at < 0:
				missing++
			case where == l && earlier.claims(l, name):
				made.fates[l][i] = fate{what: present, index: at}
				ours++
				if profile.elements[l][i].native && !p.item(p.lists[l].from+at).native {
					d.warn("init container %q of sidecar profile %q has lost restartPolicy: Always, and the pod will not start: another webhook that does not know the field has removed it", name, profile.name)
				}
			default:
				refused++
				d.refuse(fmt.Sprintf("spec.%s[%d].name", where, at), renameHint,
					"%q is the name of a container that sidecar profile %q adds", name, profile.name)
			}
		}
	}
	for i := range profile.elements[volumes] {
		e := &profile.elements[volumes][i]
		at := p.find(volumes, e.name)
		switch {
		case at < 0:
			missing++
		// Only beside a container of ours is a volume that is not equal, or no
		// longer, believed to be ours.
		case ours > 0 && earlier.claims(volumes, e.name), equalVolume(e.volume, p.item(p.lists[volumes].from+at).text):
			made.fates[volumes][i] = fate{what: reused, index: at}
			if (ours > 0 || profile.onlyVolumes()) && earlier != nil && slices.Contains(earlier.Volumes, e.name) {
				made.fates[volumes][i].what = present
			}
		default:
			refused++
			d.refuse(fmt.Sprintf("spec.volumes[%d].name", at), renameHint+"; an equal volume would be used as it is",
				"%q is the name of a volume that sidecar profile %q adds, and is not equal to it", e.name, profile.name)
		}
	}
	stale := ours > 0 && earlier.Revision != profile.revision
	switch {
	case refused > 0:
		made.reason = Refused
	case missing > 0 && stale:
		made.reason = Refused
		d.refuse(statusField, "remove the annotation and what it lists from the pod",
			"revision %.64q of sidecar profile %q is in the pod, and lacks something of revision %q, which is in force", earlier.Revision, profile.name, profile.revision)
	case missing > 0:
	case stale:
		made.reason = AlreadyThere
		d.warn("the pod has revision %.64q of sidecar profile %q and is left as it is; revision %q is in force", earlier.Revision, profile.name, profile.revision)
	default:
		made.reason = AlreadyThere
	}
}

// checkPorts refuses a pod whose ports clash with those of the elements that are
// to be added. Ports of the profile's own elements do not clash: Compile has
// seen to it.
func (d *Decision) checkPorts(p *pod, made *plan) error {
	for _, l := range [...]list{initContainers, containers} {
		for i := p.lists[l].from; i < p.lists[l].to; i++ {
			it := p.item(i)
			for k, element := range it.ports.Elements() {
				port, err := readPort(element)
				if err != nil {
					return fmt.Errorf("spec.%s[%d].ports[%d]: %w", l, i-p.lists[l].from, k, err)
				}
				// A plain init container has ended before containers start, but
				// native sidecars run beside it.
				owner, field := made.clash(&port, l == initContainers && !it.native)
				if owner == "" {
					continue
				}
				made.reason = Refused
				d.refuse(fmt.Sprintf("spec.%s[%d].ports[%d].%s", l, i-p.lists[l].from, k, field), "change the port, or "+declineHint,
					"%s is declared by container %q of sidecar profile %q too", port.text(field), owner, made.profile.name)
			}
		}
	}
	return nil
}

// clash tells which container that is to be added declares a port that clashes
// with one of the pod's, and over which field. It returns nothing if none does.
func (p *plan) clash(port *declaredPort, beforeContainers bool) (owner, field string) {
	for _, l := range [...]list{initContainers, containers} {
		if l == containers && beforeContainers {
			continue
		}
		for i := range p.profile.elements[l] {
			e := &p.profile.elements[l][i]
			if !e.runs(l) || p.fate(l, i).what != toAdd {
				continue
			}
			for k := range e.ports {
				if field := port.clash(&e.ports[k]); field != "" {
					return e.name, field
				}
			}
		}
	}
	return "", ""
}

// readPort reads a port of the pod's own. The API server writes numbers as
// integers; what is none equals no port.
func readPort(v rawjson.Value) (declaredPort, error) {
	var (
		port declaredPort
		room [8]rawjson.Member // A port has five members.
	)
	members, err := fields(room[:0], v)
	if err != nil {
		return port, err
	}
	for i := range members {
		value := members[i].Value
		switch string(members[i].Name) {
		case `"containerPort"`:
			port.number = number(value)
		case `"hostPort"`:
			port.hostPort = number(value)
		case `"hostIP"`:
			port.hostIP = value.Text()
		case `"protocol"`:
			if !value.Is(string(corev1.ProtocolTCP)) { // the default
				port.protocol = corev1.Protocol(value.Text())
			}
		}
	}
	return port, nil
}

func number(v rawjson.Value) int32 {
	n, err := strconv.ParseInt(string(v), 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}
