package drill

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"
)

// harmless is a webhook about a resource that no cluster needs.
const harmless = `rules: [{apiGroups: [example.org], apiVersions: ["*"], operations: [CREATE], resources: [things]}]`

const (
	slice = `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: guard-1, namespace: guard, labels: {kubernetes.io/service-name: guard}}, addressType: IPv4,
  ports: [{name: "", port: 8443}], endpoints: [{addresses: [192.0.2.1], conditions: {ready: %t}, targetRef: {kind: Pod, namespace: guard, name: guard-1}}]}`
	podOn = `{apiVersion: v1, kind: Pod, metadata: {name: %[1]s, namespace: guard, labels: {app: guard, pod-template-hash: x}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: guard-x, uid: u, controller: true}]},
  spec: {nodeName: %[2]s, containers: [{name: guard, image: example.org/guard:1}]}, status: {phase: Running, conditions: [{type: Ready, status: "True"}]}}`
	ownNamespace = `{apiVersion: v1, kind: Namespace, metadata: {name: guard, labels: {kubernetes.io/metadata.name: guard}}}`
)

// wholeCluster is a cluster in which everything is right, with other documents in place of those that they replace.
func wholeCluster(t *testing.T, fields string, replace map[int]string, more ...string) *Cluster {
	t.Helper()
	documents := append(guard(fields), fmt.Sprintf(slice, true), fmt.Sprintf(podOn, "guard-1", "a"), fmt.Sprintf(podOn, "guard-2", "b"), ownNamespace)
	for i, document := range replace {
		documents[i] = document
	}
	c := clusterOf(t, slices.DeleteFunc(append(documents, more...), func(s string) bool { return s == "" })...)
	c.Whole, c.Kubernetes = true, "1.37"
	return c
}

// The places in wholeCluster.
const (
	theService = iota
	theDeployment
	theBudget
	theHook
	theSlice
	theFirstPod
	theSecondPod
)

// TestRisks has what is wrong with a webhook besides what it stops.
func TestRisks(t *testing.T) {
	t.Parallel()
	ca, _ := issued(t, "guard.guard.svc", now.Add(365*24*time.Hour))
	soonCA, _ := issued(t, "guard.guard.svc", now.Add(10*24*time.Hour))
	oldCA, _ := issued(t, "guard.guard.svc", now.Add(-time.Hour))
	with := func(bundle []byte) string {
		return fmt.Sprintf(`%s, clientConfig: {caBundle: %s, service: {namespace: guard, name: guard}}`, harmless, base64.StdEncoding.EncodeToString(bundle))
	}
	good := with(ca)
	service := func(spec string) string {
		return `{apiVersion: v1, kind: Service, metadata: {name: guard, namespace: guard}, spec: ` + spec + `}`
	}
	for name, c := range map[string]struct {
		fields  string
		replace map[int]string
		more    []string
		want    string
	}{
		"nothing":                      {good, nil, nil, ""},
		"no Service":                   {good, map[int]string{theService: ""}, nil, "service-missing"},
		"another port":                 {good, map[int]string{theService: service(`{selector: {app: guard}, ports: [{port: 8443}]}`)}, nil, "wrong-port"},
		"no endpoint has the port":     {good, map[int]string{theService: service(`{selector: {app: guard}, ports: [{name: https, port: 443}]}`)}, nil, "wrong-port"},
		"no endpoints":                 {good, map[int]string{theSlice: ""}, nil, "no-endpoints"},
		"no ready endpoint":            {good, map[int]string{theSlice: fmt.Sprintf(slice, false)}, nil, "no-endpoints"},
		"one node":                     {good, map[int]string{theSecondPod: fmt.Sprintf(podOn, "guard-2", "a")}, nil, "one-node"},
		"no budget":                    {good, map[int]string{theBudget: ""}, nil, "no-budget"},
		"the budget of others":         {good, map[int]string{theBudget: `{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: a, namespace: guard}, spec: {selector: {matchLabels: {app: b}}}}`}, nil, "no-budget"},
		"one replica":                  {good, map[int]string{theDeployment: strings.Replace(guard("")[theDeployment], "replicas: 2", "replicas: 1", 1)}, nil, "one-replica"},
		"no CA":                        {harmless, nil, nil, "ca-invalid"},
		"a CA that is none":            {with([]byte("nonsense")), nil, nil, "ca-invalid"},
		"a CA that ends soon":          {with(soonCA), nil, nil, "ca-expires"},
		"a CA that has ended":          {with(oldCA), nil, nil, "ca-expires"},
		"an old CA and a new one":      {with(slices.Concat(oldCA, ca)), nil, nil, ""},
		"side effects":                 {strings.Replace(good, "rules:", "sideEffects: Unknown, rules:", 1), nil, nil, "side-effects"},
		"an APIService":                {good, nil, []string{`{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.a}, spec: {service: {namespace: guard, name: guard}}}`}, "api-service"},
		"an APIService of nothing":     {good, nil, []string{`{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.a}, spec: {service: {namespace: guard, name: gone}}}`}, "api-service service-missing"},
		"an APIService of its own":     {good, nil, []string{`{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.apps}, spec: {group: apps}}`}, ""},
		"a conversion webhook":         {good, nil, []string{`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.example.org}, spec: {conversion: {strategy: Webhook, webhook: {clientConfig: {service: {namespace: guard, name: guard, port: 443}}}}}}`}, "conversion"},
		"a conversion webhook, broken": {good, nil, []string{`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.example.org}, spec: {conversion: {strategy: Webhook, webhook: {clientConfig: {service: {namespace: guard, name: gone}}}}}}`}, "conversion service-missing"},
		"conversion without a webhook": {good, nil, []string{`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.example.org}, spec: {conversion: {strategy: None}}}`}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := run(t, wholeCluster(t, c.fields, c.replace, c.more...))
			if got := codes(r); got != c.want || len(r.Unknown) > 0 {
				t.Errorf("got  %q\nwant %q\nunknown %q", got, c.want, r.Unknown)
			}
		})
	}
}

// TestItems: the items of a list have no kind of their own.
func TestItems(t *testing.T) {
	t.Parallel()
	c := NewCluster()
	for resource, text := range map[string]string{
		"customresourcedefinitions": `{"metadata": {"name": "things.example.org"}, "spec": {"versions": [{"name": "v1", "schema": {}}], "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"namespace": "guard", "name": "guard", "port": 8443}}}}}}`,
		"services":                  `{"metadata": {"namespace": "guard", "name": "guard"}, "spec": {"ports": [{"port": 443}]}}`,
		"apiservices":               `{"metadata": {"name": "v1.a"}, "spec": {"service": {"namespace": "guard", "name": "guard", "port": 443}}}`,
	} {
		if err := c.AddOf(resource, []byte(text), Place{}); err != nil {
			t.Error(err)
		}
	}
	if got := codes(run(t, c)); got != "api-service conversion wrong-port" {
		t.Errorf("got %q", got)
	}
	for _, resource := range []string{"customresourcedefinitions", "services", "apiservices", "deployments", "pods"} {
		for _, bad := range []string{"", "[]", `"a"`} {
			if c.AddOf(resource, []byte(bad), Place{}) == nil {
				t.Errorf("%s: %q is an object", resource, bad)
			}
		}
	}
}

// TestHandshake: what a pod serves is verified as the API server does.
func TestHandshake(t *testing.T) {
	t.Parallel()
	ca, leaf := issued(t, "guard.guard.svc", now.Add(365*24*time.Hour))
	_, other := issued(t, "guard.guard.svc", now.Add(365*24*time.Hour))
	_, misnamed := issued(t, "guard.other.svc", now.Add(365*24*time.Hour))
	fields := fmt.Sprintf(`%s, clientConfig: {caBundle: %s, service: {namespace: guard, name: guard}}`, harmless, base64.StdEncoding.EncodeToString(ca))
	for name, c := range map[string]struct {
		served        *x509.Certificate
		err           error
		want, unknown string
	}{
		"what the CA has issued": {leaf, nil, "", ""},
		"of another CA":          {other, nil, "ca-mismatch", ""},
		"for another name":       {misnamed, nil, "ca-mismatch", ""},
		"no answer":              {nil, errors.New("the right to create pods/portforward is missing"), "", "was not seen: the right to create pods/portforward is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := New(t.Context(), wholeCluster(t, fields, nil))
			if err != nil {
				t.Fatal(err)
			}
			r, err := d.Run(t.Context(), Options{Now: now, Served: func(_ context.Context, namespace, pod string, port int, name string) ([]*x509.Certificate, error) {
				if namespace != "guard" || pod != "guard-1" || port != 8443 || name != "guard.guard.svc" {
					t.Errorf("asked %s/%s at port %d for %s", namespace, pod, port, name)
				}
				return []*x509.Certificate{c.served}, c.err
			}})
			if err != nil {
				t.Fatal(err)
			}
			if got, unknown := codes(r), strings.Join(r.Unknown, "\n"); got != c.want || !strings.Contains(unknown, c.unknown) || (c.unknown == "") != (unknown == "") {
				t.Errorf("got %q, unknown %q", got, unknown)
			}
		})
	}
}

// TestNoHandshake: that the certificates of a cluster were not asked for is said once.
func TestNoHandshake(t *testing.T) {
	t.Parallel()
	ca, _ := issued(t, "guard.guard.svc", now.Add(365*24*time.Hour))
	d, err := New(t.Context(), wholeCluster(t, fmt.Sprintf(`%s, clientConfig: {caBundle: %s, service: {namespace: guard, name: guard}}`, harmless, base64.StdEncoding.EncodeToString(ca)), nil))
	if err != nil {
		t.Fatal(err)
	}
	r, err := d.Run(t.Context(), Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	if assumed := strings.Join(r.Assumed, "\n"); strings.Count(assumed, "(hint: --handshake)") != 1 {
		t.Errorf("assumed %q", assumed)
	}
}

// TestTogether has what several webhooks are for one request.
func TestTogether(t *testing.T) {
	t.Parallel()
	mutating := func(name, fields string) string {
		return strings.Replace(hookWith(name, pods+", failurePolicy: Ignore, "+fields), "Validating", "Mutating", 1)
	}
	for name, c := range map[string]struct {
		documents []string
		want      string
	}{
		"one":              {[]string{mutating("a", "timeoutSeconds: 30")}, ""},
		"two":              {[]string{mutating("a", "timeoutSeconds: 17, reinvocationPolicy: IfNeeded"), mutating("b", "timeoutSeconds: 1")}, "slow-requests"},
		"two fast ones":    {[]string{mutating("a", "timeoutSeconds: 10"), mutating("b", "timeoutSeconds: 10")}, "order"},
		"one sees more":    {[]string{mutating("a", "timeoutSeconds: 10, reinvocationPolicy: IfNeeded"), mutating("b", "timeoutSeconds: 10")}, ""},
		"and a validating": {[]string{mutating("a", "timeoutSeconds: 10"), hookWith("b", pods+", failurePolicy: Ignore, timeoutSeconds: 30")}, "slow-requests"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := codes(run(t, clusterOf(t, c.documents...))); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestCycles has what waits for each other, through webhooks, drivers of nodes and cert-manager.
func TestCycles(t *testing.T) {
	t.Parallel()
	on := func(name, excluded string) string {
		return hookWith(name, fmt.Sprintf(`%s, namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, %s]}]}`, pods, excluded))
	}
	daemon := func(namespace, name, spec string) string {
		return fmt.Sprintf(`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: %s, namespace: %s}, spec: {template: {metadata: {labels: {app: driver}}, spec: {%s, containers: [{name: a, image: example.org/a}]}}}}`, name, namespace, spec)
	}
	cni := daemon("net", "cni", "hostNetwork: true, volumes: [{name: a, hostPath: {path: /etc/cni/net.d}}]")
	csi := daemon("disks", "csi", "volumes: [{name: a, hostPath: {path: /var/lib/kubelet/plugins/a}}]")
	disk := strings.Replace(guard("")[theDeployment], "spec: {containers", "spec: {volumes: [{name: a, persistentVolumeClaim: {claimName: a}}], containers", 1)
	certManager := `{apiVersion: apps/v1, kind: Deployment, metadata: {name: cert-manager, namespace: cert-manager}, spec: {template: {metadata: {labels: {app: cert-manager}}, spec: {containers: [{name: a, image: "quay.io/jetstack/cert-manager-controller:v1.19.1@sha256:0"}]}}}}`
	issuedHook := strings.Replace(on("guard", "guard"), "metadata: {", "metadata: {annotations: {cert-manager.io/inject-ca-from: guard/a}, ", 1)
	for name, c := range map[string]struct {
		documents []string
		want      string
	}{
		"alone":               {[]string{on("a", "a")}, ""},
		"two":                 {[]string{on("a", "a"), on("b", "b")}, "[a/a b/b] false"},
		"one way":             {[]string{on("a", "a"), on("b", "a, b")}, ""},
		"three in a ring":     {[]string{on("a", "a, c"), on("b", "b, a"), on("c", "c, b")}, "[a/a b/b c/c] false"},
		"the network":         {[]string{on("guard", "guard"), cni}, "[DaemonSet net/cni guard/guard] false"},
		"the network, spared": {[]string{on("guard", "guard, net"), cni}, ""},
		"storage":             {[]string{on("guard", "guard"), guard("")[theService], disk, csi}, "[DaemonSet disks/csi guard/guard] false"},
		"storage, not used":   {[]string{on("guard", "guard"), guard("")[theService], guard("")[theDeployment], csi}, ""},
		"cert-manager":        {[]string{issuedHook, certManager}, "[Deployment cert-manager/cert-manager guard/guard] true"},
		"another issuer":      {[]string{on("guard", "guard"), certManager}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := run(t, clusterOf(t, c.documents...))
			var got []string
			for _, cycle := range r.Cycles {
				got = append(got, fmt.Sprint(cycle.Members, cycle.Certificate))
			}
			if strings.Join(got, "; ") != c.want {
				t.Errorf("got %q, want %q\n%+v", got, c.want, r.Dependencies)
			}
			if found := codes(r); strings.Contains(found, "-dependence") != (c.want != "") || strings.Contains(found, "certificate-") != strings.HasSuffix(c.want, "true") {
				t.Errorf("the codes are %q", found)
			}
		})
	}
}

// TestPicture: names that strangers choose do not become a part of the picture's language.
func TestPicture(t *testing.T) {
	t.Parallel()
	r := &Report{Dependencies: []Dependency{{From: "a\"]\n b --> c", To: "b/<c>", Why: ByWebhook}, {From: "b/<c>", To: "b/<c>", Why: ByNetwork}}}
	var mermaid, dot strings.Builder
	r.WriteMermaid(&mermaid)
	r.WriteDOT(&dot)
	if want := "flowchart LR\n  n0[\"a#quot;]  b --#gt; c\"]\n  n1[\"b/#lt;c#gt;\"]\n  n0 -->|webhook| n1\n  n1 ==>|network| n1\n"; mermaid.String() != want {
		t.Errorf("got\n%s\nwant\n%s", mermaid.String(), want)
	}
	if want := "digraph drill {\n  rankdir=LR\n  node [shape=box]\n  \"a\\\"]\\n b --> c\"\n  \"b/<c>\" [color=red]\n  \"a\\\"]\\n b --> c\" -> \"b/<c>\" [label=\"webhook\"]\n  \"b/<c>\" -> \"b/<c>\" [label=\"network\", color=red]\n}\n"; dot.String() != want {
		t.Errorf("got\n%s\nwant\n%s", dot.String(), want)
	}
}

// issued returns a CA in PEM that ends at a time, and a certificate for a name that it has issued.
func issued(t *testing.T, name string, end time.Time) (ca []byte, leaf *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: now.Add(-24 * time.Hour), NotAfter: end, IsCA: true, BasicConstraintsValid: true,
	}
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{name}, NotBefore: root.NotBefore, NotAfter: end}, root, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if leaf, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: rootDER}), leaf
}
