package webhooks

import (
	"cmp"
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// Injector returns a function that changes the pod of a pod template by mutating policies and
// injects sidecars, so that policies see what the mutating endpoint will make of it.
func Injector(set *sidecar.Set, mutating *mutation.Set) policy.Injector {
	mutates := mutating != nil && !mutating.IsEmpty()
	return func(ctx context.Context, namespace, workload string, pod []byte) (text []byte, refusal string, err error) {
		in := ForTemplate(namespace, workload, pod)
		if mutates {
			switch d := mutating.Decide(ctx, mutation.Input{Request: in.Request}); {
			case d.Err != nil:
				return nil, "", d.Err
			case d.Refusal != nil:
				return pod, d.Refusal.Message, nil
			case d.Object != nil:
				pod = d.Object
				in = sidecar.ForPod(namespace, pod)
			}
		}
		in.Checked, in.Workload, in.Apply = true, workload, true
		d := set.Decide(ctx, in)
		switch {
		case d.Err != nil:
			return nil, "", d.Err
		case len(d.Refusals) > 0:
			return pod, "sidecar injection: " + d.Refusals[0].Message, nil
		case len(d.Patches) == 0:
			return pod, "", nil
		default:
			return d.Patched, "", nil
		}
	}
}

// ForTemplate returns the Input for the creation of the pod of a template by the controller of its workload, given as "Deployment/checkout".
func ForTemplate(namespace, workload string, pod []byte) sidecar.Input {
	in := sidecar.ForPod(namespace, pod)
	in.Workload = workload
	kind, _, _ := strings.Cut(workload, "/")
	controller := map[string]string{
		"Deployment": "replicaset-controller", "ReplicaSet": "replicaset-controller", "StatefulSet": "statefulset-controller",
		"DaemonSet": "daemon-set-controller", "Job": "job-controller", "CronJob": "job-controller", "ReplicationController": "replication-controller",
	}[kind]
	in.Request.UserInfo.Username = serviceaccount.MakeUsername(metav1.NamespaceSystem, cmp.Or(controller, "controller"))
	in.Request.UserInfo.Groups = append(serviceaccount.MakeGroupNames(metav1.NamespaceSystem), user.AllAuthenticated)
	return in
}
