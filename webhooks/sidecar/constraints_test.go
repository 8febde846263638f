package sidecar_test

import "testing"

// TestUnfit says which pods the API server would refuse for what the profile
// makes of them: what is added, merged, or set for the pod as a whole.
func TestUnfit(t *testing.T) {
	t.Parallel()
	const (
		side   = "template: {spec: {initContainers: [{name: side, image: side, restartPolicy: Always, startupProbe: {exec: {command: [ok]}}, resources: {requests: {memory: 1Gi}}}]}}"
		app    = "appContainers: [{template: {resources: {requests: {memory: 1Gi}}}}]"
		sleep  = "appContainers: [{names: [app], template: {lifecycle: {preStop: {sleep: {seconds: 60}}}}}]"
		resize = "appContainers: [{names: [app], template: {resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]}}]"
		keep   = "onSameName: Keep\n"
	)
	type unfitCase struct{ name, profile, pod, reasons, says string }
	fits := func(name, profile, pod string) unfitCase {
		return unfitCase{name, profile, pod, "a=applied", ""}
	}
	unfit := func(name, profile, pod, says string) unfitCase {
		return unfitCase{name, profile, pod, "a=refused", "refused: " + says + declines}
	}
	memory := func(most string) string {
		return "spec.resources: the pod has " + most + ` of memory for all of its containers, which does not suffice with what sidecar profile "a" adds`
	}
	for _, tc := range []unfitCase{
		unfit("an element that is added", side, "{resources: {requests: {memory: 1Gi}}, containers: [{name: app, resources: {requests: {memory: 1Mi}}}]}", memory("1Gi")),
		fits("there is enough", side, "{resources: {requests: {memory: 2Gi}}, containers: [{name: app, resources: {requests: {memory: 1Gi}}}]}"),
		fits("another resource", side, "{resources: {requests: {cpu: 1}}, containers: [{name: app}]}"),
		unfit("one that is merged", keep+side, "{resources: {requests: {memory: 1Gi}}, initContainers: [{name: side, restartPolicy: Always}], containers: [{name: app, resources: {requests: {memory: 1Mi}}}]}", memory("1Gi")),
		fits("one that is merged and says so itself", keep+side, "{resources: {requests: {memory: 1Gi}}, initContainers: [{name: side, restartPolicy: Always, resources: {requests: {memory: 1Mi}}}], containers: [{name: app}]}"),
		unfit("the pod's own containers", app, "{resources: {requests: {memory: 1Gi}}, containers: [{name: app}, {name: web}]}", memory("1Gi")),
		fits("one of the pod's own containers says so itself", app, "{resources: {requests: {memory: 1.5Gi}}, containers: [{name: app, resources: {requests: {memory: 1Mi}}}, {name: web}]}"),
		unfit("a limit of the pod", app, "{resources: {limits: {memory: 512Mi}}, containers: [{name: app}]}", memory("512Mi")),
		unfit("a limit of the pod, and one of a container", "appContainers: [{template: {resources: {limits: {memory: 1Gi}}}}]", "{resources: {requests: {memory: 1Mi}, limits: {memory: 512Mi}}, containers: [{name: app}]}", memory("512Mi")),
		fits("an init container that ends before the others start", "appContainers: [{initContainers: true, template: {resources: {requests: {memory: 1Gi}}}}]", "{resources: {requests: {memory: 1Gi}}, initContainers: [{name: setup}], containers: [{name: app}]}"),
		unfit("an init container beside a native sidecar", "appContainers: [{initContainers: true, template: {resources: {requests: {memory: 1Gi}}}}]",
			"{resources: {requests: {memory: 1.5Gi}}, initContainers: [{name: helper, restartPolicy: Always, resources: {requests: {memory: 1Gi}}}, {name: setup}], containers: [{name: app, resources: {requests: {memory: 1Mi}}}]}", memory("1536Mi")),
		unfit("what the profile sets for the pod", "template: {spec: {resources: {requests: {memory: 1Gi}}}}", "{containers: [{name: app, resources: {requests: {memory: 2Gi}}}]}", memory("1Gi")),

		unfit("a hook that sleeps", sleep, "{terminationGracePeriodSeconds: 30, containers: [{name: app}]}", `spec.terminationGracePeriodSeconds: with sidecar profile "a" a container sleeps for 60 seconds before it ends, and the pod has 30`),
		fits("a hook that the container has", sleep+"\ntemplate: {metadata: {labels: {l: m}}}", "{terminationGracePeriodSeconds: 30, containers: [{name: app, lifecycle: {preStop: {exec: {command: [x]}}}}]}"),
		fits("a hook of a container that is not there", sleep+"\ntemplate: {metadata: {labels: {l: m}}}", "{terminationGracePeriodSeconds: 30, containers: [{name: web}]}"),
		unfit("a grace period that the profile sets", "template: {spec: {terminationGracePeriodSeconds: 5}}", "{terminationGracePeriodSeconds: 30, containers: [{name: app, lifecycle: {preStop: {sleep: {seconds: 20}}}}]}",
			`spec.terminationGracePeriodSeconds: with sidecar profile "a" a container sleeps for 20 seconds before it ends, and the pod has 5`),
		unfit("a container that is restarted to be resized", resize, "{restartPolicy: Never, containers: [{name: app}]}", `spec.restartPolicy: with sidecar profile "a" a container is restarted to be resized, and the pod's never are`),
		fits("one of a pod that is restarted", resize, "{restartPolicy: OnFailure, containers: [{name: app}]}"),
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d, _ := inject(t, compile(t, optOut("a", tc.profile)), "spec: "+tc.pod)
			check(t, "reasons", reasons(&d), tc.reasons)
			check(t, "said", said(&d), tc.says)
		})
	}
}
