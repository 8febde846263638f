package sidecar_test

import (
	"strings"
	"testing"
)

// TestWhatCannotStandTogether: what the API server refuses beside what the pod
// says is a conflict, or left out, and never added.
func TestWhatCannotStandTogether(t *testing.T) {
	t.Parallel()
	const (
		ports    = "appContainers: [{template: {ports: [{name: metrics, containerPort: 9100}, {containerPort: 9200}]}}]"
		hostPort = "appContainers: [{names: [app], template: {ports: [{containerPort: 9100, hostPort: 9100}, {containerPort: 9101, hostPort: 9101}]}}]"
		keep     = "onSameName: Keep\ntemplate: {spec: {containers: [{name: app, image: a, ports: [{name: metrics, containerPort: 9100}]}]}}"
		armor    = "appContainers: [{template: {securityContext: {appArmorProfile: {type: RuntimeDefault}, runAsNonRoot: true}}}]"
		alone    = "appContainers: [{template: {tty: true, securityContext: {appArmorProfile: {type: Localhost, localhostProfile: x}}}}]"
		users    = "template: {spec: {hostUsers: false}}"
		native   = "onSameName: Keep\ntemplate: {spec: {initContainers: [{name: side, image: a, restartPolicy: Always, workingDir: /w, startupProbe: {exec: {command: [ok]}}}]}}"
		kept     = "onConflict: Keep\n"

		metrics = "spec: {containers: [{name: app, ports: [{name: metrics, containerPort: 8080}]}]}"
		policy  = "spec: {initContainers: [{name: side, restartPolicy: Never}], containers: [{name: app}]}"
		taken   = `spec.containers[0].ports[0].name: sidecar profile "a": "metrics" is the name of another one that the profile adds`
		host    = `spec.hostUsers: sidecar profile "a": what the pod says beside it excludes what the profile says`
		differs = `spec.initContainers[0].restartPolicy: sidecar profile "a": the pod has "Never", and the profile says "Always"`
	)
	table := func(name, profile, pod, want string, says ...string) injection {
		return injection{name: name, profiles: []string{optOut("a", profile)}, pod: pod, want: want, says: says}
	}
	armored := func(annotation, container string) string {
		return "metadata: {annotations: {container.apparmor.security.beta.kubernetes.io/app: " + annotation + "}}\nspec: {containers: [{name: app" + container + "}]}"
	}
	runAll(t, []injection{
		table("name of a port", ports, metrics, "", "refused: "+taken+declines),
		table("name of a port, and what is there is kept", kept+ports, metrics, "spec: {containers: [{name: app, ports: [{name: metrics, containerPort: 8080}, {containerPort: 9200}]}]}", "warning: "+taken+", and what is there is kept"),
		table("name of a port that is the same", ports, "spec: {containers: [{name: app, ports: [{name: metrics, containerPort: 9100}, {containerPort: 9200}]}]}", ""),
		table("name of a port of another container", "appContainers: [{names: [web], template: {ports: [{name: metrics, containerPort: 9100}]}}]",
			"spec: {containers: [{name: app, ports: [{name: metrics, containerPort: 8080}]}, {name: web, ports: []}]}", "spec: {containers: [{name: app, ports: [{name: metrics, containerPort: 8080}]}, {name: web, ports: [{name: metrics, containerPort: 9100}]}]}"),
		table("name of a port of a container that is merged", keep, metrics, "", "refused: "+taken+declines),

		table("port of the node of another container", hostPort, "spec: {containers: [{name: app}, {name: web, ports: [{containerPort: 1, hostPort: 9100}]}]}", "",
			`refused: spec.containers[1].ports[0].hostPort: hostPort 9100/TCP is added by sidecar profile "a" to container "app" too`+strings.Replace(declines, "decline", "change the port, or decline", 1)),
		table("port of the node of the container itself, and that is kept", kept+hostPort, "spec: {containers: [{name: app, ports: [{containerPort: 1, hostPort: 9100}]}]}",
			"spec: {containers: [{name: app, ports: [{containerPort: 1, hostPort: 9100}, {containerPort: 9101, hostPort: 9101}]}]}",
			`warning: spec.containers[0].ports[0].hostPort: hostPort 9100/TCP is added by sidecar profile "a" to container "app" too, and what is there is kept`),
		table("port of the node of another protocol", hostPort, "spec: {containers: [{name: app}, {name: web, ports: [{containerPort: 1, hostPort: 9100, protocol: UDP}]}]}",
			"spec: {containers: [{name: app, ports: [{containerPort: 9100, hostPort: 9100}, {containerPort: 9101, hostPort: 9101}]}, {name: web, ports: [{containerPort: 1, hostPort: 9100, protocol: UDP}]}]}"),
		table("port of the node that is the same", hostPort, "spec: {containers: [{name: app, ports: [{containerPort: 9100, hostPort: 9100}, {containerPort: 9101, hostPort: 9101}]}]}", ""),

		table("users of the node and its processes", users, "spec: {hostPID: true}", "", "refused: "+host+declines),
		table("users of the node and its communication", users, "spec: {hostIPC: true}", "", "refused: "+host+declines),
		table("users of the node and its network", "hostNetwork: Inject\n"+users, "spec: {hostNetwork: true}", "", "refused: "+host+declines),
		table("users of the node, and that is kept", kept+users, "spec: {hostPID: true}", "", "warning: "+host+", and what is there is kept"),
		table("users alone", users, "spec: {hostPID: false}", "spec: {hostPID: false, hostUsers: false}"),

		table("a native sidecar and an init container", native, policy, "", "refused: "+differs+declines),
		table("a native sidecar and an init container, and that is kept", kept+native, policy, "spec: {initContainers: [{name: side, restartPolicy: Never, image: a, workingDir: /w}], containers: [{name: app}]}", "warning: "+differs+", and what is there is kept"),
		table("a native sidecar and a container that says nothing", native, "spec: {initContainers: [{name: side}], containers: [{name: app}]}",
			"spec: {initContainers: [{name: side, image: a, restartPolicy: Always, workingDir: /w, startupProbe: {exec: {command: [ok]}}}], containers: [{name: app}]}"),

		table("an AppArmor profile beside an annotation", armor, armored("unconfined", ""), armored("unconfined", ", securityContext: {runAsNonRoot: true}")),
		table("an AppArmor profile that an annotation gives", armor, armored("runtime/default", ""), armored("runtime/default", ", securityContext: {appArmorProfile: {type: RuntimeDefault}, runAsNonRoot: true}")),
		table("nothing but an AppArmor profile", alone, armored("localhost/y", ""), armored("localhost/y", ", tty: true")),
		table("an AppArmor profile of the node that an annotation gives", alone, armored("localhost/x", ""), armored("localhost/x", ", tty: true, securityContext: {appArmorProfile: {type: Localhost, localhostProfile: x}}")),
	})
}
