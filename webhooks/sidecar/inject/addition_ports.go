package inject

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
)

// withoutTakenHostPorts returns what is added to one of the pod's own containers without the
// ports of the node that another port of the pod has already.
func (inj *injection) withoutTakenHostPorts(l podtext.List, it *podtext.Element, template rawjson.Value) (rawjson.Value, error) {
	ports := template.Get("ports")
	var rest []json.RawMessage
	dropped := false
	for _, element := range ports.Elements() {
		port, err := podtext.ReadPort(element)
		if err != nil {
			return nil, fmt.Errorf("appContainers: %w", err)
		}
		path, err := inj.findHostPort(&port, element, l, it)
		if err != nil {
			return nil, err
		}
		if path != "" && inj.conflict(path, "change the port, or "+inj.in.Profile.DeclineHint(),
			fmt.Sprintf("%s is added by sidecar profile %q to container %q too", port.Describe("hostPort"), inj.in.Profile.Name, it.Name.Text())) {
			dropped = true
			continue
		}
		rest = append(rest, json.RawMessage(element))
	}
	if !dropped {
		return template, nil
	}
	text, err := json.Marshal(rest)
	if err != nil {
		return nil, fmt.Errorf("appContainers: %w", err)
	}
	if len(rest) == 0 {
		return merge.RemoveMembers(template, "ports"), nil
	}
	return merge.SetMember(template, template, "ports", string(text))
}

// findHostPort returns the path of a port of the pod with which one of the node that
// is added to a container clashes, or nothing. A plain init container has ended
// before containers start.
func (inj *injection) findHostPort(port *podtext.Port, element rawjson.Value, to podtext.List, of *podtext.Element) (string, error) {
	if port.HostPort == 0 {
		return "", nil
	}
	key := merge.ContainerRules.Field("ports").Key(element)
	for l, other := range inj.now.Pod.Containers() {
		if l != to && (l == podtext.InitContainers && !other.IsNative || to == podtext.InitContainers && !of.IsNative) {
			continue
		}
		for k, theirs := range other.Ports.Elements() {
			if other == of && merge.ContainerRules.Field("ports").Key(theirs) == key {
				continue // It is the same port.
			}
			declared, err := podtext.ReadPort(theirs)
			if err != nil {
				return "", fmt.Errorf("container %q: ports[%d]: %w", other.Name.Text(), k, err)
			}
			if port.HostPort == declared.HostPort && port.ConflictsOver(&declared) == "hostPort" {
				return "spec." + l.String() + "[" + strconv.Itoa(inj.now.Pod.Find(l, other.Name.Text())) + "].ports[" + strconv.Itoa(k) + "].hostPort", nil
			}
		}
	}
	return "", nil
}
