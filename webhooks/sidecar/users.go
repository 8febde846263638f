package sidecar

import (
	"fmt"
	"slices"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// checkUsers finds containers that run as a user which the profile claims for
// one of its own.
func (pl *plan) checkUsers() {
	for l := initContainers; l <= containers; l++ {
		for i := range pl.profile.elements[l] {
			e := &pl.profile.elements[l][i]
			if f := pl.fate(l, i); f.what == present || !slices.Contains(pl.profile.distinctUsers, e.name) {
				continue
			}
			user := rawjson.Value(pl.rendered.elements[l][i].raw).Get("securityContext", "runAsUser")
			if user == nil {
				continue
			}
			pl.checkUser(e.name, user)
		}
	}
}

func (pl *plan) checkUser(name string, user rawjson.Value) {
	p := pl.pod
	podUser := p.security.Get("runAsUser")
	for l := initContainers; l <= containers; l++ {
		for i := p.lists[l].from; i < p.lists[l].to; i++ {
			it := p.item(i)
			path := fmt.Sprintf("spec.%s[%d].securityContext.runAsUser", l, i-p.lists[l].from)
			theirs := it.text.Get("securityContext", "runAsUser")
			if theirs.Kind() != rawjson.Number {
				theirs, path = podUser, "spec.securityContext.runAsUser"
			}
			if it.name.Is(name) || string(theirs) != string(user) {
				continue
			}
			pl.conflict(path, "run the container as another user, or "+pl.profile.declineHint(),
				fmt.Sprintf("container %q runs as user %s, which container %q of sidecar profile %q needs for itself", it.name.Text(), user, name, pl.profile.name))
		}
	}
}
