// Command strategic makes test vectors for strategic merge patches: an object,
// a patch, and what the apimachinery of Kubernetes makes of the two.
//
//	go run . -seed 1 -count 400 > ../../../crates/setpoint-apiserver/src/patch/strategic/vectors.jsonl
//
// A third of the patches are what kubectl would compute for a change, the rest
// are wild: directives in places where they make sense, and where they do not.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

var kinds = []struct {
	name   string
	object func() runtime.Object
}{
	{"core.v1.Pod", func() runtime.Object { return &corev1.Pod{} }},
	{"core.v1.Pod", func() runtime.Object { return &corev1.Pod{} }},
	{"apps.v1.Deployment", func() runtime.Object { return &appsv1.Deployment{} }},
	{"core.v1.Service", func() runtime.Object { return &corev1.Service{} }},
	{"core.v1.ServiceAccount", func() runtime.Object { return &corev1.ServiceAccount{} }},
	{"core.v1.ConfigMap", func() runtime.Object { return &corev1.ConfigMap{} }},
	{"core.v1.Node", func() runtime.Object { return &corev1.Node{} }},
	{"policy.v1.PodDisruptionBudget", func() runtime.Object { return &policyv1.PodDisruptionBudget{} }},
	{"rbac.v1.ClusterRole", func() runtime.Object { return &rbacv1.ClusterRole{} }},
	{"apiextensions.v1.CustomResourceDefinition", func() runtime.Object { return &apiextensionsv1.CustomResourceDefinition{} }},
}

type vector struct {
	Type     string         `json:"type"`
	Original map[string]any `json:"original"`
	Patch    map[string]any `json:"patch"`
	Result   map[string]any `json:"result,omitempty"`
	Error    string         `json:"error,omitempty"`
}

func main() {
	seed := flag.Int64("seed", 1, "where the random sequence starts")
	count := flag.Int("count", 400, "how many vectors to write")
	flag.Parse()
	maker := &maker{rand.New(rand.NewSource(*seed))}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for written := 0; written < *count; {
		if made, ok := maker.vector(); ok {
			line, err := json.Marshal(made)
			if err != nil {
				panic(err)
			}
			fmt.Fprintf(out, "%s\n", line)
			written++
		}
	}
}

type maker struct{ *rand.Rand }

func (m *maker) chance(percent int) bool { return m.Intn(100) < percent }

// vector gives nothing where the answer depends on the order of Go's maps, or
// where Go panics.
func (m *maker) vector() (vector, bool) {
	kind := kinds[m.Intn(len(kinds))]
	original := m.object(kind.object())
	modified := m.object(kind.object())
	var patch map[string]any
	if m.chance(33) {
		patch = computed(original, modified, kind.object())
	} else {
		patch = modified
		m.mangle(patch, original, 0)
	}
	if patch == nil {
		return vector{}, false
	}
	made := vector{Type: kind.name, Original: clone(original), Patch: clone(patch)}
	first, text, ok := apply(original, patch, kind.object())
	if !ok {
		return vector{}, false
	}
	for range 40 {
		again, other, _ := apply(original, patch, kind.object())
		if text != other || !reflect.DeepEqual(first, again) {
			return vector{}, false
		}
	}
	made.Result, made.Error = first, text
	return made, true
}

func apply(original, patch map[string]any, kind runtime.Object) (result map[string]any, text string, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	result, err := strategicpatch.StrategicMergeMapPatch(clone(original), clone(patch), kind)
	if err != nil {
		return nil, err.Error(), true
	}
	return clone(result), "", true
}

func computed(original, modified map[string]any, kind runtime.Object) (patch map[string]any) {
	defer func() {
		if recover() != nil {
			patch = nil
		}
	}()
	before, _ := json.Marshal(original)
	after, _ := json.Marshal(modified)
	schema, err := strategicpatch.NewPatchMetaFromStruct(kind)
	if err != nil {
		return nil
	}
	// What was applied before is another version: some of what is there is the server's alone.
	text, err := strategicpatch.CreateThreeWayMergePatch(after[:0:0], after, before, schema, true)
	if err != nil {
		return nil
	}
	if err := json.Unmarshal(text, &patch); err != nil {
		return nil
	}
	return integers(patch).(map[string]any)
}

// integers are int64 in kube-apiserver, not float64.
func integers(value any) any {
	switch value := value.(type) {
	case float64:
		return int64(value)
	case []any:
		for i := range value {
			value[i] = integers(value[i])
		}
	case map[string]any:
		for key := range value {
			value[key] = integers(value[key])
		}
	}
	return value
}

// clone copies lists without room at their end, as kube-apiserver's converter does.
func clone(value map[string]any) map[string]any { return cloned(value).(map[string]any) }

func cloned(value any) any {
	switch value := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(value))
		for key, item := range value {
			out[key] = cloned(item)
		}
		return out
	case []any:
		if value == nil {
			return []any{}
		}
		out := make([]any, len(value))
		for i, item := range value {
			out[i] = cloned(item)
		}
		return out
	}
	return value
}

// object is the kind with random content, as a map.
func (m *maker) object(kind runtime.Object) map[string]any {
	m.fill(reflect.ValueOf(kind).Elem(), 0, "")
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(kind)
	if err != nil {
		panic(err)
	}
	return clone(content)
}

var words = []string{"a", "b", "c", "d", "e"}

var eager = []string{"metadata", "spec", "template", "containers", "initContainers", "volumes", "ports", "env",
	"status", "conditions", "finalizers", "ownerReferences", "secrets", "versions", "schema", "openAPIV3Schema",
	"rules", "taints", "volumeMounts", "imagePullSecrets", "strategy", "tolerations", "labels", "annotations",
	"hostAliases", "selector", "addresses", "properties", "data"}

func (m *maker) fill(value reflect.Value, depth int, name string) {
	switch content := value.Addr().Interface().(type) {
	case *resource.Quantity:
		*content = *resource.NewQuantity(int64(m.Intn(3)), resource.DecimalSI)
		return
	case *intstr.IntOrString:
		*content = intstr.FromInt32(int32(m.Intn(3)))
		return
	case *metav1.Time, *metav1.MicroTime, *metav1.FieldsV1, *runtime.RawExtension, *apiextensionsv1.JSON,
		*apiextensionsv1.JSONSchemaPropsOrArray, *apiextensionsv1.JSONSchemaPropsOrBool,
		*apiextensionsv1.JSONSchemaPropsOrStringArray, *metav1.ManagedFieldsEntry:
		return
	}
	switch value.Kind() {
	case reflect.String:
		value.SetString(words[m.Intn(len(words))])
	case reflect.Int32, reflect.Int64:
		value.SetInt(int64(m.Intn(4)))
	case reflect.Bool:
		value.SetBool(m.chance(50))
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		m.fill(value.Elem(), depth, name)
	case reflect.Slice:
		if value.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		count := m.Intn(5)
		if depth > 7 {
			count = 0
		}
		value.Set(reflect.MakeSlice(value.Type(), count, count))
		for i := range count {
			m.fill(value.Index(i), depth+1, name)
		}
	case reflect.Map:
		value.Set(reflect.MakeMap(value.Type()))
		for range m.Intn(3) {
			item := reflect.New(value.Type().Elem()).Elem()
			if depth <= 7 {
				m.fill(item, depth+1, name)
			}
			value.SetMapIndex(reflect.ValueOf(words[m.Intn(len(words))]).Convert(value.Type().Key()), item)
		}
	case reflect.Struct:
		m.fillFields(value, depth)
	}
}

func (m *maker) fillFields(value reflect.Value, depth int) {
	for i := range value.NumField() {
		field := value.Type().Field(i)
		if field.PkgPath != "" || field.Name == "TypeMeta" || field.Name == "ManagedFields" {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		percent := 12
		switch {
		case field.Anonymous:
			percent = 100
		case slices.Contains(eager, name):
			percent = 60
		case isKey(value.Type(), name):
			percent = 97
		}
		if m.chance(percent) && depth < 9 {
			m.fill(value.Field(i), depth+1, name)
		}
	}
}

func isKey(owner reflect.Type, name string) bool {
	return slices.Contains([]string{"name", "uid", "type", "ip", "key", "containerPort", "port", "mountPath"}, name)
}

// mangle puts directives into a patch.
func (m *maker) mangle(patch, original map[string]any, depth int) {
	for _, key := range slices.Sorted(mapKeys(patch)) {
		before, _ := original[key].(map[string]any)
		switch value := patch[key].(type) {
		case map[string]any:
			m.mangle(value, before, depth+1)
		case []any:
			m.mangleList(patch, original, key, value, depth)
		}
		if depth > 0 && m.chance(6) {
			patch[key] = []any{nil, "other", int64(7), []any{"x"}, map[string]any{"k": "v"}, 1.5, true}[m.Intn(7)]
		} else if m.chance(7) {
			patch[key] = nil
		} else if m.chance(15) {
			delete(patch, key)
		}
	}
	if depth > 0 && m.chance(4) {
		patch["$patch"] = []any{"replace", "replace", "delete", "merge", "other", int64(1), nil}[m.Intn(7)]
	}
	if m.chance(6) {
		keys := []any{}
		for _, key := range slices.Sorted(mapKeys(patch)) {
			if m.chance(95) {
				keys = append(keys, key)
			}
		}
		for _, key := range slices.Sorted(mapKeys(original)) {
			if m.chance(40) {
				keys = append(keys, key)
			}
		}
		patch["$retainKeys"] = keys
		if m.chance(5) {
			patch["$retainKeys"] = "all"
		}
	}
	if m.chance(1) {
		patch[[]string{"$setElementOrder", "$deleteFromPrimitiveList", "$setElementOrder/none", "$setElementOrder/metadata"}[m.Intn(4)]] = []any{"a"}
	}
}

func (m *maker) mangleList(patch, original map[string]any, key string, items []any, depth int) {
	before, _ := original[key].([]any)
	scalars := true
	for _, item := range items {
		if fields, ok := item.(map[string]any); ok {
			scalars = false
			var match map[string]any
			if len(before) > 0 {
				match, _ = before[m.Intn(len(before))].(map[string]any)
			}
			m.mangle(fields, match, depth+1)
		}
	}
	if m.chance(30) {
		order := []any{}
		for _, item := range slices.Concat(items, before) {
			if fields, ok := item.(map[string]any); ok {
				only := map[string]any{}
				for _, name := range []string{"name", "uid", "type", "ip", "key", "containerPort", "port", "mountPath", "topologyKey", "conditionType", "devicePath"} {
					if value, ok := fields[name]; ok {
						only[name] = value
					}
				}
				if m.chance(85) {
					order = append(order, only)
				}
			} else if m.chance(85) {
				order = append(order, item)
			}
		}
		patch["$setElementOrder/"+key] = order
	}
	if scalars && m.chance(30) {
		patch["$deleteFromPrimitiveList/"+key] = m.some(slices.Concat(before, []any{"a"}))
	}
	if !scalars && m.chance(25) {
		for _, item := range m.some(before) {
			if fields, ok := item.(map[string]any); ok {
				gone := clone(fields)
				gone["$patch"] = "delete"
				items = append(items, gone)
			}
		}
		if m.chance(10) {
			items = append(items, map[string]any{"$patch": []any{"replace", "merge", "delete", "x"}[m.Intn(4)]})
		}
		patch[key] = items
	}
	if m.chance(2) {
		patch[key] = append(items, []any{"text", int64(3), []any{}, map[string]any{"only": "this"}}[m.Intn(4)])
	}
	if m.chance(8) {
		delete(patch, key)
	}
}

func (m *maker) some(items []any) []any {
	out := []any{}
	for _, item := range items {
		if m.chance(50) {
			out = append(out, item)
		}
	}
	return out
}

func mapKeys(fields map[string]any) func(func(string) bool) {
	return func(yield func(string) bool) {
		for key := range fields {
			if !yield(key) {
				return
			}
		}
	}
}
