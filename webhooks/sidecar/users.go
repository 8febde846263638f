package sidecar

import (
	"fmt"
	"slices"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
)

// checkUsers finds containers that run as a user which the profile claims for
// one of its own.
func (pl *plan) checkUsers() {
	for l := podtext.InitContainers; l <= podtext.Containers; l++ {
		for i := range pl.profile.Elements[l] {
			e := &pl.profile.Elements[l][i]
			if f := pl.fate(l, i); f.what == present || !slices.Contains(pl.profile.DistinctUsers, e.Name) {
				continue
			}
			user := rawjson.Value(pl.Rendered.Elements[l][i].Raw).Get("securityContext", "runAsUser")
			if user == nil {
				continue
			}
			pl.checkUser(e.Name, user)
		}
	}
}

func (pl *plan) checkUser(name string, user rawjson.Value) {
	p := pl.pod
	podUser := p.SecurityContext.Get("runAsUser")
	for l := podtext.InitContainers; l <= podtext.Containers; l++ {
		for i := p.Lists[l].From; i < p.Lists[l].To; i++ {
			it := p.Element(i)
			path := fmt.Sprintf("spec.%s[%d].securityContext.runAsUser", l, i-p.Lists[l].From)
			theirs := it.Text.Get("securityContext", "runAsUser")
			if theirs.Kind() != rawjson.Number {
				theirs, path = podUser, "spec.securityContext.runAsUser"
			}
			if it.Name.Is(name) || string(theirs) != string(user) {
				continue
			}
			pl.conflict(path, "run the container as another user, or "+pl.profile.DeclineHint(),
				fmt.Sprintf("container %q runs as user %s, which container %q of sidecar profile %q needs for itself", it.Name.Text(), user, name, pl.profile.Name))
		}
	}
}
