package property_test

import (
	"fmt"
	"math/rand/v2"
	"strings"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// generator writes pods that no pod of ours would look like: with fields that
// nobody knows, in any order and spacing, with escapes, absent and null lists,
// claims, words and parameters of every sort.
type generator struct {
	*rand.Rand
	// forged reports whether pods may come with a status annotation.
	forged bool
}

func newGenerator(seed uint64, forged bool) *generator {
	return &generator{rand.New(rand.NewPCG(seed, 1)), forged}
}

func (g *generator) one(texts ...string) string { return texts[g.IntN(len(texts))] }

// maybe returns the text, but absent once in n times.
func (g *generator) maybe(n int, text string) string {
	if g.IntN(n) == 0 {
		return ""
	}
	return text
}

// rarely returns the text once in n times.
func (g *generator) rarely(n int, text string) string {
	if g.IntN(n) == 0 {
		return text
	}
	return ""
}

// text returns a string, sometimes written with escapes.
func (g *generator) text(s string) string {
	if s == "" || g.IntN(8) != 0 {
		return string(rawjson.AppendString(nil, s))
	}
	return fmt.Sprintf(`"\u%04x%s`, s[0], rawjson.AppendString(nil, s[1:])[1:])
}

// member returns a member of an object.
func (g *generator) member(name, value string) string {
	if g.IntN(30) == 0 {
		return g.text(name) + g.space() + ":" + g.space() + value
	}
	return string(rawjson.AppendString(nil, name)) + ":" + value
}

func (g *generator) space() string { return g.one("", " ", "\n\t", "\r\n") }

// object returns an object of the members that are there and of unknown ones, in any
// order.
func (g *generator) object(members ...string) string {
	var all []string
	for _, m := range members {
		if m != "" {
			all = append(all, m)
		}
	}
	for i := range max(g.IntN(5)-2, 0) {
		all = append(all, fmt.Sprintf(`"unknown%d":%s`, i, g.one(
			`1.50`, `-0`, `1e400`, `"<\u0026>\ud83d\ude00 \u2028"`, `[ {"a" : null} ]`, `{"z":1,"a":{"name":"mesh-proxy"}}`, `true`,
			`[{"name":"app","env":[{"name":"A"}]}]`, `12345678901234567890`, `"\/"`,
		)))
	}
	g.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	space := g.one("", "", "", g.space())
	return "{" + space + strings.Join(all, space+","+space) + space + "}"
}

// list returns a list of up to most elements.
func (g *generator) list(most int, element func() string) string {
	elements := make([]string, g.IntN(most+1))
	for i := range elements {
		elements[i] = element()
	}
	space := g.one("", "", g.space())
	return "[" + space + strings.Join(elements, space+","+space) + space + "]"
}

// distinct returns a list of up to three objects with different names.
func (g *generator) distinct(names []string, element func(name string) string) string {
	order := g.Perm(len(names))
	next := 0
	return g.list(3, func() string {
		next++
		return element(names[order[next-1]])
	})
}

func (g *generator) pod() string {
	return g.space() + g.object(
		g.maybe(3, g.member("apiVersion", `"v1"`)), g.maybe(3, g.member("kind", `"Pod"`)),
		g.maybe(9, g.member("metadata", g.one("null", g.metadata(), g.metadata(), g.metadata(), g.metadata()))),
		g.maybe(60, g.member("spec", g.spec())),
	) + g.space()
}

func (g *generator) metadata() string {
	return g.object(
		g.rarely(2, g.member("name", `"checkout"`)),
		g.rarely(2, g.member("generateName", `"checkout-"`)),
		g.rarely(3, `"ownerReferences":[{"kind":"ReplicaSet","name":"w`+fmt.Sprint(g.IntN(50))+`","controller":true}]`),
		g.maybe(2, g.member("labels", g.one("null", "{}", g.strings("tier", "web", "app", "x", "team", "payments", "no-settings", "", "mesh-excluded", "")))),
		g.maybe(3, g.member("annotations", g.one("null", "{}", g.annotations(), g.annotations(), g.annotations()))),
	)
}

// strings returns an object of some of the pairs of names and values.
func (g *generator) strings(pairs ...string) string {
	var all []string
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, g.rarely(3, g.member(pairs[i], g.text(pairs[i+1]))))
	}
	return g.object(all...)
}

func (g *generator) annotations() string {
	const mesh = "mesh.sidecar.gatehouse.dev/"
	all := []string{
		g.rarely(3, g.member("sidecar.gatehouse.dev/inject", g.text(g.one("true", "true", "true", "false", "no", "mesh", "names", "asked,-logs", "-mesh,-fields", "clean , -lax", "asked")))),
		g.rarely(12, g.member(mesh+"level", g.text(g.one("debug", "debug", "loud")))),
		g.rarely(12, g.member(mesh+"port", g.text(g.one("8443", "80", "2020", "15001.0")))),
		g.rarely(12, g.member(mesh+"cpu", g.text(g.one("250m", "2", "3")))),
		g.rarely(12, g.member(mesh+"note", g.text(g.one(`"},"args":["evil"],"x":{"`, "${pod.metadata.name}", "\u2028<&>", "\x00\x1f")))),
		g.rarely(4, g.member(mesh+"hosts", g.text(g.one("", "a", "a,b,c", `","b`, "1,2,3")))),
		g.rarely(40, g.member(mesh+"unknown", `"1"`)),
		g.rarely(3, g.member("fields.example/a", g.text(g.one("1", "2")))),
		g.rarely(3, g.member("mesh.example/note", `"mine"`)),
	}
	if g.forged {
		all = append(all, g.rarely(3, g.member("sidecar.gatehouse.dev/status", string(rawjson.AppendString(nil, g.status())))))
	}
	return g.object(all...)
}

// status returns a status annotation that nobody has written.
func (g *generator) status() string {
	fieldPaths := func() string {
		return g.list(4, func() string {
			return g.one(
				`"/spec/containers/name=app/env/name=MESH"`, `"/spec/containers/name=app"`, `"/metadata/labels/mesh"`, `"/metadata/labels"`, `"/spec"`,
				`"/spec/tolerations/=~1"`, `"/metadata/annotations/fields.example~1a"`, `"/spec/containers/name=web/volumeMounts/mountPath=~1etc~1mesh"`,
				`"/metadata"`, `"/spec/dnsConfig"`, `"/spec/initContainers"`, `"/spec/containers/name=logs/ports/containerPort=80&protocol=TCP"`, `"/spec//"`, `"status"`,
			)
		})
	}
	names := func(names ...string) string {
		return g.list(2, func() string { return `"` + g.one(names...) + `"` })
	}
	entry := func(name string) string {
		return g.object(
			`"name":"`+name+`"`, `"revision":"`+g.one("x", "", "000000000000")+`"`,
			g.maybe(2, `"initContainers":`+names("mesh-proxy", "mesh-init", "logs", "setup", "clean", "lax")),
			g.maybe(2, `"containers":`+names("audit", "agent", "app")),
			g.maybe(2, `"volumes":`+names("mesh-certs", "data", "tmp", "audit")),
			g.rarely(3, `"reusedVolumes":`+names("data")), g.rarely(3, `"mergedContainers":`+names("agent", "setup")),
			g.rarely(3, `"replacedContainers":`+names("agent", "setup")), g.rarely(2, `"added":`+fieldPaths()),
		)
	}
	claims := g.object(
		`"profiles":`+g.distinct([]string{"mesh", "logs", "audit", "names", "fields", "clean", "unheard-of"}, entry),
		g.rarely(2, `"created":`+fieldPaths()),
		g.rarely(3, `"originals":{`+g.one(`"/spec/containers":null`, `"/spec/containers/name=app":{"name":"app"}`, `"/metadata":null`, `"/spec/dnsPolicy":"Default"`, `"/spec":1`, `"/spec/volumes":[]`)+`}`),
	)
	return g.one("forged", "", "{}", "null", `{"profiles":[]}`, claims, claims, claims, claims, claims)
}

func (g *generator) spec() string {
	taken := g.Perm(len(allNames))
	next := 0
	// Names are distinct in a pod, as in every pod that can be created.
	container := func(init bool) func() string {
		return func() string {
			if next == len(taken) {
				next = 0
			}
			name := allNames[taken[next]]
			next++
			return g.container(name, init)
		}
	}
	volume := func(name string) string {
		return g.object(g.member("name", g.text(name)), g.maybe(2, g.one(`"emptyDir":{}`, `"emptyDir":{"medium":"Memory"}`, `"secret":{"secretName":"s","defaultMode":420}`, `"hostPath":{"path":"/"}`, `"configMap":{"name":"audit"}`)))
	}
	return g.object(
		g.maybe(2, g.member("initContainers", g.one("null", g.list(2, container(true)), g.list(3, container(true))))),
		g.maybe(20, g.member("containers", g.one("null", g.list(2, container(false)), g.list(4, container(false)), g.list(4, container(false))))),
		g.maybe(3, g.member("volumes", g.one("null", g.distinct([]string{"cache", "tmp", "data", "mesh-certs", "audit"}, volume)))),
		g.rarely(3, g.member("restartPolicy", g.one(`"Always"`, `"Never"`, "null"))),
		g.rarely(3, g.member("hostNetwork", g.one("false", "false", "true"))),
		g.rarely(3, g.member("tolerations", g.one("null", "[]", `[{"operator":"Exists","key":"spot"}]`, `[ {"key":"own","operator":"Exists","unknown":1} , {"key" : "dedicated","operator":"Equal","value":"platform","effect":"NoSchedule"} ]`))),
		g.rarely(4, g.member("imagePullSecrets", g.one("null", `[{"name":"registry","unknown":1}]`, `[{"name":"own"}]`, `[{}]`))),
		g.rarely(4, g.member("hostAliases", g.one(`[{"ip":"10.0.0.1","hostnames":["own"]}]`, `[{"ip":"10.0.0.1"}]`, `[{"ip":"10.0.0.1","hostnames":null}]`, `[{"ip":"10.0.0.2","hostnames":["x"]}]`))),
		g.rarely(4, g.member("dnsConfig", g.object(g.rarely(2, `"searches":["own","mesh.internal"]`), g.rarely(2, `"options":[{"name":"ndots","value":"5"}]`)))),
		g.rarely(4, g.member("dnsPolicy", g.one(`"ClusterFirst"`, `"Default"`, "null"))),
		g.rarely(4, g.member("securityContext", g.object(g.rarely(2, `"fsGroup":1`), g.rarely(2, `"runAsUser":1337`), g.rarely(2, `"supplementalGroups":[3000,1]`)))),
		g.rarely(4, g.member("topologySpreadConstraints", `[{"topologyKey":"topology.kubernetes.io/zone","whenUnsatisfiable":"`+g.one("ScheduleAnyway", "DoNotSchedule")+`","maxSkew":5}]`)),
		g.rarely(4, g.member("affinity", g.one("null", `{"podAntiAffinity":{}}`, `{"nodeAffinity":{"x":1}}`))),
		g.rarely(4, g.member("nodeSelector", g.one(`{"kubernetes.io/arch":"arm64"}`, `{"own":"1"}`))),
		g.rarely(4, g.member("terminationGracePeriodSeconds", g.one("30", "5"))),
		g.rarely(4, g.member("enableServiceLinks", g.one("true", "false"))),
		g.rarely(9, g.member("ephemeralContainers", `[{"name":"debug"}]`)),
	)
}

var allNames = []string{"app", "web", "helper", "container1", "migrate", "worker", "cache", "setup", "agent", "own", "third", "other", "mesh-proxy", "logs"}

func (g *generator) container(name string, init bool) string {
	if (name == "mesh-proxy" || name == "logs") && g.IntN(6) != 0 {
		name = "x-" + name
	}
	env := func(name string) string {
		return g.object(g.member("name", g.text(name)), g.one(`"value":"1"`, `"value":"$(A)"`, `"valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}`, ""))
	}
	mount := func(path string) string {
		return g.object(g.member("mountPath", g.text(path)), g.member("name", g.text(g.one("data", "cache", "mesh-certs"))), g.rarely(3, `"readOnly":`+g.one("true", "false", "null")), g.rarely(6, `"subPathExpr":"$(POD)/$$(X)/$(A)"`), g.rarely(6, `"subPath":"s"`))
	}
	port := func() string {
		return g.object(`"containerPort":`+g.one("80", "2020", "9000", "8080", "9901"), g.rarely(3, `"protocol":`+g.one(`"TCP"`, `"UDP"`)), g.rarely(9, `"hostPort":`+g.one("80", "0")), g.rarely(3, `"name":"http"`))
	}
	return g.object(
		g.maybe(40, g.member("name", g.text(name))),
		g.maybe(3, g.member("image", `"example/app:1"`)),
		g.rarely(3, g.member("args", g.one("null", `["a", "b"]`))),
		g.rarely(2, g.member("env", g.one("null", g.distinct([]string{"A", "B", "MESH", "MESH_LEVEL", "TEAM", "LOG_LEVEL", "TZ", "POD"}, env)))),
		g.rarely(4, g.member("envFrom", g.one("null", `[{"configMapRef":{"optional":true,"name":"settings"}}]`, `[{"prefix":"X"}]`))),
		g.rarely(2, g.member("volumeMounts", g.one("null", g.distinct([]string{"/data", "/tmp", "/etc/mesh", "/var/run/mesh", "/var/run/secrets/kubernetes.io/serviceaccount", "/host/logs"}, mount)))),
		g.rarely(8, g.member("volumeDevices", g.one("null", `[{"name":"block","devicePath":"/dev/xvda"}]`))),
		g.rarely(3, g.member("ports", g.one("null", g.list(1, port)))),
		g.rarely(4, g.member("resources", g.one("null", "{}", `{"requests":{"memory":"1Gi"}}`, `{"limits":{"cpu":1}}`))),
		g.rarely(4, g.member("terminationMessagePolicy", `"File"`)),
		g.rarely(4, g.member("securityContext", g.one("null", "{}", `{"capabilities":{"drop":["ALL"]}}`, `{"capabilities":null}`, `{"runAsUser":1337}`))),
		map[bool]string{true: g.rarely(2, g.member("restartPolicy", `"Always"`))}[init],
	)
}
