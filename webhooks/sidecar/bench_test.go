package sidecar_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// podOfSize returns a pod as the API server sends it, of about so many bytes: one
// container of 1.2 KB, and more with growing size.
func podOfSize(size int) string {
	var b strings.Builder
	b.WriteString(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"checkout-7d4b9c6f5d-x2x7k","generateName":"checkout-7d4b9c6f5d-","namespace":"shop","uid":"5f4e3d2c-1b0a-4998-8776-655443322110","creationTimestamp":"2026-11-20T08:00:00Z","labels":{"app":"checkout","pod-template-hash":"7d4b9c6f5d","tier":"backend"},"annotations":{"checksum/config":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","prometheus.io/scrape":"true"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"checkout-7d4b9c6f5d","uid":"0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9","controller":true,"blockOwnerDeletion":true}]},"spec":{"volumes":[{"name":"kube-api-access-abcde","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}}],"defaultMode":420}}],"containers":[`)
	for i := 0; ; i++ {
		fmt.Fprintf(&b, `{"name":"app-%d","image":"registry.example/team/app:1.4.%d","args":["--listen=:%d","--config=/etc/app/config.yaml"],"ports":[{"name":"http-%d","containerPort":%d,"protocol":"TCP"}],`, i, i, 8000+i, i, 8000+i)
		b.WriteString(`"env":[{"name":"POD_NAME","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}},{"name":"DATABASE_URL","value":"postgres://db.example:5432/app?sslmode=verify-full"},{"name":"LOG_LEVEL","value":"info"}],"resources":{"limits":{"cpu":"500m","memory":"256Mi"},"requests":{"cpu":"50m","memory":"128Mi"}},"volumeMounts":[{"name":"kube-api-access-abcde","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],"livenessProbe":{"httpGet":{"path":"/healthz","port":8080,"scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent","securityContext":{"capabilities":{"drop":["ALL"]},"runAsNonRoot":true,"allowPrivilegeEscalation":false}}`)
		if b.Len() > size-600 {
			break
		}
		b.WriteByte(',')
	}
	b.WriteString(`],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"checkout","serviceAccount":"checkout","securityContext":{"seccompProfile":{"type":"RuntimeDefault"}},"schedulerName":"default-scheduler","tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"},"status":{}}`)
	return b.String()
}

func BenchmarkReview(b *testing.B) {
	set := compile(b, shipper())
	for _, size := range []int{1500, 5000, 60000} {
		pod := podOfSize(size)
		applied := apply(b, pod, set.Decide(context.Background(), sidecar.Input{Request: request("shop", pod)}).Response().Patches)
		for _, bc := range []struct {
			name, namespace, pod string
			patched              bool
		}{
			{"applying", "shop", pod, true},
			{"not selected", "quiet", pod, false},
			{"second call", "shop", applied, false},
		} {
			b.Run(fmt.Sprintf("%s/%.1fKB", bc.name, float64(len(bc.pod))/1000), func(b *testing.B) {
				r := request(bc.namespace, bc.pod)
				b.ReportAllocs()
				for b.Loop() {
					response := set.Decide(context.Background(), sidecar.Input{Request: r}).Response()
					if !response.Allowed || (response.Patches != nil) != bc.patched {
						b.Fatalf("%+v", response)
					}
				}
			})
		}
	}
}
