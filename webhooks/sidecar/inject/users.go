package inject

import (
	"fmt"
	"slices"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
)

// checkUsers finds containers that run as a user that the profile reserves for one of its
// own.
func (inj *injection) checkUsers() error {
	if len(inj.in.Profile.DistinctUsers) == 0 {
		return nil
	}
	for l := podtext.InitContainers; l <= podtext.Containers; l++ {
		for i := range inj.in.Profile.Elements[l] {
			e := &inj.in.Profile.Elements[l][i]
			if f := inj.action(l, i); f.kind == present || !slices.Contains(inj.in.Profile.DistinctUsers, e.Name) {
				continue
			}
			user := rawjson.Value(inj.in.Rendered.Elements[l][i].Raw).Get("securityContext", "runAsUser")
			if user == nil {
				continue
			}
			inj.checkUser(e.Name, user)
		}
	}
	return nil
}

func (inj *injection) checkUser(name string, user rawjson.Value) {
	p := inj.now.Pod
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
			inj.conflict(path, "run the container as another user, or "+inj.in.Profile.DeclineHint(),
				fmt.Sprintf("container %q runs as user %s, which container %q of sidecar profile %q needs for itself", it.Name.Text(), user, name, inj.in.Profile.Name))
		}
	}
}
