package sidecar

import (
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/status"
)

// claims finds what the status annotation that a pod came with, and the one that it gets,
// list, by the names of containers. A status that nobody but an attacker has written can
// list thousands, for a pod that has as many.
type claims struct {
	// read is true once the pod's status is in, and now is how many entries of the one that
	// it gets are.
	read bool
	now  int
	// added are the containers that any profile lists, and owners the first profile of the
	// set that does.
	added  [podtext.NumLists]map[string]bool
	owners [podtext.NumLists]map[string]string
}

// claims returns what both status annotations list so far. It is for a pod that came with
// one.
func (m *maker) claims() *claims {
	c := &m.claimed
	if !c.read {
		c.read = true
		for l := range podtext.NumLists {
			c.added[l], c.owners[l] = map[string]bool{}, map[string]string{}
		}
		for i := range m.status.Profiles {
			c.add(m.set, &m.status.Profiles[i])
		}
	}
	for ; c.now < len(m.now.Profiles); c.now++ {
		e := &m.now.Profiles[c.now]
		c.add(m.set, e)
		for l := podtext.InitContainers; l <= podtext.Containers; l++ {
			for _, names := range [...][]string{e.Merged, e.Replaced} {
				for _, name := range names {
					c.added[l][name] = true
				}
			}
		}
	}
	return c
}

// add adds the containers that an entry lists as added.
func (c *claims) add(s *Set, e *status.Entry) {
	_, known := s.byName[e.Name]
	for l := podtext.InitContainers; l <= podtext.Containers; l++ {
		for _, name := range *e.List(l) {
			c.added[l][name] = true
			if _, owned := c.owners[l][name]; known && !owned {
				c.owners[l][name] = e.Name
			}
		}
	}
}
