"""Draws a terminal with what `setpoint demo` printed: setpoint demo | python3 docs/img/demo.py > docs/img/demo.svg"""
import html
import re
import sys

LINE, TOP = 17, 44
lines = sys.stdin.read().rstrip("\n").split("\n")
width, height = 860, TOP + LINE * (len(lines) + 1) + 10
print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="setpoint demo">')
print("<style>text{font:12.5px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre;fill:#e6edf3}"
      ".b{font-weight:700}.d{fill:#8b949e}.c{fill:#79c0ff}.g{fill:#7ee787}</style>")
print(f'<rect width="{width}" height="{height}" rx="10" fill="#0d1117"/>')
for x, colour in ((22, "#ff5f57"), (42, "#febc2e"), (62, "#28c840")):
    print(f'<circle cx="{x}" cy="20" r="6" fill="{colour}"/>')


def span(kind, text):
    return f'<tspan class="{kind}">{html.escape(text)}</tspan>' if kind else html.escape(text)


for number, line in enumerate(["$ cargo run --release -- demo"] + lines):
    found = re.match(r"^( *\d+ ms)(  )(\S+(?: set)? +)(.*)$", line)
    if found and found[3].strip() == "done":
        body = span("d", found[1]) + span("g", found[2] + found[3] + found[4])
    elif found and not found[3].strip().endswith(":"):
        stage = "b" if found[3].strip() == "object" else "c"
        body = span("d", found[1]) + span(stage, found[2] + found[3]) + span("", found[4])
    elif re.match(r"^(\d\.|An API|Everything)", line):
        body = span("b", line)
    else:
        body = span("", line)
    print(f'<text x="18" y="{TOP + LINE * number}" xml:space="preserve">{body}</text>')
print("</svg>")
