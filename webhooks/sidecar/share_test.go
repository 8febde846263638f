package sidecar_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// sharing returns a profile of one native sidecar to which something is shared.
func sharing(share, more string) string {
	return optOut("a", "template: {spec: {initContainers: ["+native("side", more)+"]}}\nshare: ["+share+"]")
}

// TestShareWithWhatIsThere: a mount that another webhook adds between two calls
// reaches the sidecar, and goes with it.
func TestShareWithWhatIsThere(t *testing.T) {
	t.Parallel()
	for _, action := range []string{"Refuse", "Keep", "Replace"} {
		for _, own := range []string{"", "{name: side, image: mine}"} {
			if action == "Refuse" && own != "" {
				continue
			}
			t.Run(action+" "+own, func(t *testing.T) {
				t.Parallel()
				set := compile(t, strings.Replace(sharing("{container: side, volumeMounts: true, env: ['*']}", ""), "template:", "onSameName: "+action+"\n  template:", 1))
				pod := "spec: {initContainers: [" + own + "], containers: [{name: app, volumeMounts: [{name: d, mountPath: /d}]}]}"
				_, patched := inject(t, set, pod)
				const more, with = `{"name":"late","env":[{"name":"L","value":"l"}],"volumeMounts":[{"name":"e","mountPath":"/e"}]}`, `"containers":[`
				changed := strings.Replace(patched, with, with+more+",", 1)
				second := set.Decide(t.Context(), sidecar.ForPod("shop", []byte(changed)))
				check(t, "said", said(&second), "")
				result := apply(t, changed, second.Patches)
				side := toTree(t, result).containers("initContainers")[0]
				check(t, "mounts", toYAML(t, side["volumeMounts"]), "- mountPath: /d\n  name: d\n- mountPath: /e\n  name: e\n")
				check(t, "variables", toYAML(t, side["env"]), "- name: L\n  value: l\n")
				third := set.Decide(t.Context(), sidecar.ForPod("shop", []byte(result)))
				if third.Patches != nil {
					t.Errorf("the third call does %v", third.Patches)
				}
				checkRemoved(t, result, strings.Replace(toJSON(t, pod), with, with+more+",", 1))
			})
		}
	}
}

// TestShareGrowsWithThePod: what sharing thousands of mounts, variables or
// devices costs, in the first call and in the second, is in proportion to their
// number, as memory shows.
func TestShareGrowsWithThePod(t *testing.T) {
	list := func(many int, element string) string {
		parts := make([]string, many)
		for i := range parts {
			parts[i] = fmt.Sprintf(element, i)
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	set := compile(t, sharing("{container: side, volumeMounts: true, volumeDevices: true, env: ['*']}", ""))
	cost := func(container string) float64 {
		pod := `{"spec":{"containers":[{"name":"app",` + container + `}]}}`
		_, once := inject(t, set, pod)
		more := strings.Replace(once, `"containers":[`, `"containers":[{"name":"late","volumeMounts":[{"name":"v","mountPath":"/late"}]},`, 1)
		return testing.AllocsPerRun(1, func() {
			for _, text := range []string{pod, more} {
				d := set.Decide(t.Context(), sidecar.ForPod("shop", []byte(text)))
				if d.Patches == nil {
					t.Errorf("nothing is shared: %s", said(&d))
				}
			}
		})
	}
	for name, container := range map[string]func(int) string{
		"mounts":    func(n int) string { return `"volumeMounts":` + list(n, `{"name":"v","mountPath":"/m%d"}`) },
		"variables": func(n int) string { return `"env":` + list(n, `{"name":"A%d","value":"1"}`) },
		"devices": func(n int) string {
			return `"volumeDevices":` + list(n, `{"name":"v","devicePath":"/d%d"}`) + `,"volumeMounts":` + list(n, `{"name":"w","mountPath":"/m%d"}`)
		},
	} {
		const few, times = 200, 8
		if small, large := cost(container(few)), cost(container(few*times)); large > 2*times*small {
			t.Errorf("%s: %v allocations for %d, and %v for %d", name, small, few, large, few*times)
		}
	}
}
