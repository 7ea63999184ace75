package main

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"sort"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	discoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

var known = runtime.NewScheme()

func init() {
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme,
	} {
		if err := add(known); err != nil {
			panic(err)
		}
	}
}

// Types that no resource leads to, but that requests and answers carry, or that
// are stored for the server's own use.
var extras = []any{
	admissionv1.AdmissionReview{},
	corev1.RangeAllocation{},
	discoveryv2.APIGroupDiscoveryList{},
	metav1.APIGroup{}, metav1.APIGroupList{}, metav1.APIResourceList{}, metav1.APIVersions{},
	metav1.DeleteOptions{}, metav1.List{}, metav1.PartialObjectMetadata{}, metav1.PartialObjectMetadataList{},
	metav1.Status{}, metav1.WatchEvent{},
}

// Types with a JSON form of their own, by the word that the table uses.
var special = map[reflect.Type]string{
	reflect.TypeFor[resource.Quantity]():                            "quantity",
	reflect.TypeFor[intstr.IntOrString]():                           "intorstring",
	reflect.TypeFor[metav1.Time]():                                  "time",
	reflect.TypeFor[metav1.MicroTime]():                             "microtime",
	reflect.TypeFor[metav1.FieldsV1]():                              "fields",
	reflect.TypeFor[runtime.RawExtension]():                         "raw",
	reflect.TypeFor[apiextensionsv1.JSON]():                         "json",
	reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrBool]():        "propsorbool",
	reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrArray]():       "propsorarray",
	reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrStringArray](): "propsorstrings",
}

var jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
var protoMarshaler = reflect.TypeFor[interface{ MarshalToSizedBuffer([]byte) (int, error) }]()

// typeOfKind gives the table's name of the Go type of a kind, or "".
func typeOfKind(gvk schema.GroupVersionKind) string {
	found, ok := known.AllKnownTypes()[gvk]
	if !ok {
		return ""
	}
	return typeName(found)
}

// collectTypes returns every struct that a served kind, its list or its
// subresources reach, sorted by name.
func collectTypes(discovery *discovered) ([]reflect.Type, error) {
	var roots []reflect.Type
	all := known.AllKnownTypes()
	for _, resources := range discovery.resources {
		for _, found := range resources {
			gvk := found.gvk()
			if _, ok := all[gvk]; !ok {
				return nil, fmt.Errorf("%s: no Go type for %s", found.Name, gvk)
			}
			roots = append(roots, all[gvk])
			gvk.Kind += "List"
			if list, ok := all[gvk]; ok {
				roots = append(roots, list)
			}
		}
	}
	for _, extra := range extras {
		roots = append(roots, reflect.TypeOf(extra))
	}
	seen := map[reflect.Type]bool{}
	for _, root := range roots {
		reach(root, seen)
	}
	var types []reflect.Type
	for found := range seen {
		types = append(types, found)
	}
	sort.Slice(types, func(i, j int) bool { return typeName(types[i]) < typeName(types[j]) })
	for i := 1; i < len(types); i++ {
		if typeName(types[i-1]) == typeName(types[i]) {
			return nil, fmt.Errorf("two types are called %s", typeName(types[i]))
		}
	}
	return types, nil
}

func reach(t reflect.Type, seen map[reflect.Type]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		reach(t.Elem(), seen)
	case reflect.Struct:
		if seen[t] || special[t] != "" && !strings.HasPrefix(special[t], "props") {
			return
		}
		if special[t] == "" {
			seen[t] = true
		}
		for i := range t.NumField() {
			if field := t.Field(i); field.Tag.Get("json") != "-" {
				reach(field.Type, seen)
			}
		}
	}
}

// typeName shortens a package path to its last two segments:
// k8s.io/api/core/v1 and Pod make core.v1.Pod.
func typeName(t reflect.Type) string {
	segments := strings.Split(t.PkgPath(), "/")
	return strings.Join(append(segments[len(segments)-2:], t.Name()), ".")
}

func printTypes(out io.Writer, types []reflect.Type, schemas map[string]*schemaOf) error {
	// OpenAPI has no schema for a struct that is only ever embedded; its fields
	// are in the schema of the struct around it.
	for _, t := range types {
		around := schemas[openAPIName(typeName(t))]
		for i := range t.NumField() {
			if field := t.Field(i); field.Anonymous && around != nil {
				name := openAPIName(typeName(field.Type))
				if schemas[name] == nil {
					schemas[name] = &schemaOf{Properties: around.Properties, Required: around.Required}
				}
			}
		}
	}
	for _, t := range types {
		if err := printType(out, t, schemas); err != nil {
			return fmt.Errorf("%s: %w", typeName(t), err)
		}
	}
	return nil
}

func printType(out io.Writer, t reflect.Type, schemas map[string]*schemaOf) error {
	published := schemas[openAPIName(typeName(t))]
	if published == nil {
		published = &schemaOf{}
	}
	fmt.Fprintf(out, "type %s", typeName(t))
	if published.MapType != "" {
		fmt.Fprintf(out, " map=%s", published.MapType)
	}
	if len(published.Unions) > 0 {
		fmt.Fprintf(out, " unions=%s", compact(published.Unions))
	}
	fmt.Fprintln(out)
	for i := range t.NumField() {
		line, err := fieldLine(t.Field(i), published)
		if err != nil {
			return fmt.Errorf("%s: %w", t.Field(i).Name, err)
		}
		if line != "" {
			fmt.Fprintln(out, line)
		}
	}
	return nil
}

// fieldLine writes a field as ` jsonName type number flags key=value…`, an
// embedded struct as ` ^ type number GoName`.
func fieldLine(field reflect.StructField, published *schemaOf) (string, error) {
	tag := strings.Split(field.Tag.Get("json"), ",")
	name, options := tag[0], tag[1:]
	if name == "-" || !field.IsExported() {
		return "", nil
	}
	number := protobufNumber(field)
	if name == "" {
		if !field.Anonymous || field.Type.Kind() != reflect.Struct {
			return "", fmt.Errorf("no JSON name")
		}
		return fmt.Sprintf(" ^ %s %s %s", typeName(field.Type), number, field.Name), nil
	}
	goType := field.Type
	flags := ""
	if slices.Contains(options, "omitempty") {
		flags += "o"
	}
	if slices.Contains(options, "omitzero") {
		flags += "z"
	}
	if goType.Kind() == reflect.Pointer {
		flags += "p"
		goType = goType.Elem()
	}
	property := published.Properties[name]
	if property == nil {
		property = &schemaOf{}
	}
	if slices.Contains(published.Required, name) {
		flags += "r"
	}
	text, err := typeText(goType)
	if err != nil {
		return "", err
	}
	extra := ""
	if len(property.Default) > 0 {
		if value := compact(property.Default); slices.Contains([]string{`{}`, `""`, `0`, `false`}, value) {
			flags += "d"
		} else {
			extra = " default=" + value
		}
	}
	var parts []string
	add := func(key, value string) {
		if value != "" {
			parts = append(parts, " "+key+"="+value)
		}
	}
	add("patch", field.Tag.Get("patchStrategy"))
	add("merge", field.Tag.Get("patchMergeKey"))
	add("list", property.ListType)
	add("keys", strings.Join(property.ListKeys, ","))
	add("map", property.MapType)
	if goType.String() != derivedGoName(goType) {
		add("go", goType.String())
	}
	if len(property.Enum) > 0 {
		return "", fmt.Errorf("enums are published now: give them a key")
	}
	return fmt.Sprintf(" %s %s %s %s%s%s", name, text, number, dash(flags), strings.Join(parts, ""), extra), nil
}

// protobufNumber reads the field number of a protobuf tag. The wire kind in the
// tag is ignored: it follows from the Go type, and upstream has tags that are
// wrong about it (CustomResourceColumnDefinition.priority).
func protobufNumber(field reflect.StructField) string {
	parts := strings.Split(field.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		return "0"
	}
	return parts[1]
}

// typeText writes a type in the table's words.
func typeText(t reflect.Type) (string, error) {
	if word := special[t]; word != "" {
		return word, nil
	}
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int32, reflect.Int64, reflect.Float64:
		return t.Kind().String(), nil
	case reflect.Struct:
		if reflect.PointerTo(t).Implements(jsonUnmarshaler) {
			return "", fmt.Errorf("%s has a JSON form of its own: give it a word", t)
		}
		return typeName(t), nil
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes", nil
		}
		element, err := typeText(t.Elem())
		if reflect.PointerTo(t).Implements(protoMarshaler) {
			// A named slice that is a protobuf message with one repeated field.
			return "()" + element, err
		}
		return "[]" + element, err
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			return "", fmt.Errorf("map keys must be strings: %s", t)
		}
		element, err := typeText(t.Elem())
		return "{}" + element, err
	}
	return "", fmt.Errorf("unexpected Go type %s", t)
}

// derivedGoName is the Go name that a reader of the table infers from the type
// alone; a field whose real name differs carries it as `go=`.
func derivedGoName(t reflect.Type) string {
	if special[t] != "" || t.Kind() == reflect.Struct {
		return t.String()
	}
	switch t.Kind() {
	case reflect.Slice:
		return "[]" + derivedGoName(t.Elem())
	case reflect.Map:
		return "map[string]" + derivedGoName(t.Elem())
	}
	return t.Kind().String()
}

func compact(raw json.RawMessage) string {
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		panic(err)
	}
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}
