package sidecar

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// freeHostPorts is what is added to one of the pod's own containers without the
// ports of the node that another port of the pod has already.
func (pl *plan) freeHostPorts(l list, it *item, template rawjson.Value) (rawjson.Value, error) {
	ports := template.Get("ports")
	var rest []json.RawMessage
	dropped := false
	for _, element := range ports.Elements() {
		port, err := readPort(element)
		if err != nil {
			return nil, fmt.Errorf("appContainers: %w", err)
		}
		path, err := pl.hostPortTaken(&port, element, l, it)
		if err != nil {
			return nil, err
		}
		if path != "" && pl.conflict(path, "change the port, or "+pl.profile.declineHint(),
			fmt.Sprintf("%s is added by sidecar profile %q to container %q too", port.text("hostPort"), pl.profile.name, it.name.Text())) {
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
		return without(template, "ports"), nil
	}
	return with(template, template, "ports", string(text))
}

// hostPortTaken is the path of a port of the pod with which one of the node that
// is added to a container clashes, or nothing. A plain init container has ended
// before containers start.
func (pl *plan) hostPortTaken(port *declaredPort, element rawjson.Value, to list, of *item) (string, error) {
	if port.hostPort == 0 {
		return "", nil
	}
	key := containerRules.field("ports").key(element)
	for l, other := range pl.pod.containers() {
		if l != to && (l == initContainers && !other.native || to == initContainers && !of.native) {
			continue
		}
		for k, theirs := range other.ports.Elements() {
			if other == of && containerRules.field("ports").key(theirs) == key {
				continue // It is the same port.
			}
			declared, err := readPort(theirs)
			if err != nil {
				return "", fmt.Errorf("container %q: ports[%d]: %w", other.name.Text(), k, err)
			}
			if port.hostPort == declared.hostPort && port.clash(&declared) == "hostPort" {
				return "spec." + l.String() + "[" + strconv.Itoa(pl.pod.find(l, other.name.Text())) + "].ports[" + strconv.Itoa(k) + "].hostPort", nil
			}
		}
	}
	return "", nil
}
