"""What single words mean to the comparison of two tasks: names in groups, words for the same, words that say little.

Curated like the table of `antonyms`. A group is a set of things of which a task names one, so that
another member makes another task; `postgres=postgresql=psql` are names of one member. Words of a
row of `_SAME` say the same in most tasks. What is in no list is compared all the same, with less
weight.
"""

from __future__ import annotations

from functools import cache

from subconscious_mcp.stems import phrase_key, rows, words

_GROUPS = """
environment: production=prod=live=live_environment staging=stage_environment=preprod=preproduction development=dev
    testing_environment=test_environment=qa=uat sandbox demo_environment canary localhost
database: postgres=postgresql=psql=pg mysql mariadb sqlite=sqlite3 oracle mssql=sql_server mongodb=mongo redis
    cassandra dynamodb=dynamo couchdb couchbase cockroachdb neo4j influxdb clickhouse snowflake bigquery redshift
    elasticsearch=elastic opensearch solr memcached firestore firebase supabase duckdb timescaledb valkey hive
    teradata db2 mariadb pinecone qdrant milvus weaviate chroma=chromadb pgvector
cloud: aws=amazon_web_services azure gcp=google_cloud=google_cloud_platform digitalocean heroku linode hetzner
    cloudflare vercel netlify alibaba_cloud ibm_cloud oracle_cloud openstack render fly_io railway ovh
aws service: s3 ec2 rds lambda ecs eks sqs sns fargate cloudfront cloudwatch route53 iam kinesis athena glue
    sagemaker ebs efs elasticache cloudformation cognito bedrock ecr emr
language: python java javascript=js typescript=ts golang rust ruby php perl scala kotlin swift haskell erlang elixir
    clojure lua julia matlab fortran cobol c++=cpp c#=csharp f# objective_c dart groovy bash=shell powershell zsh
    fish sql html css sass vba solidity ocaml zig nim assembly
operating system: linux windows macos=mac=osx=mac_os ios android ubuntu debian fedora centos rhel=red_hat alpine
    arch_linux suse=opensuse freebsd chromeos raspbian wsl unix
web framework: react angular vue=vuejs svelte django flask fastapi express=expressjs rails=ruby_on_rails laravel
    spring_boot nextjs nuxt=nuxtjs jquery symfony ember gatsby remix astro nestjs starlette tornado sinatra phoenix
    bootstrap tailwind
runtime: nodejs=node deno bun jvm dotnet graalvm pypy cpython wasm=webassembly
container tool: docker podman containerd kubernetes=k8s openshift nomad docker_compose docker_swarm minikube k3s
    rancher lxc vagrant virtualbox vmware hyper_v
deployment tool: helm terraform ansible puppet chef saltstack pulumi kustomize argocd=argo_cd flux packer opentofu
build tool: maven gradle npm yarn pnpm pip poetry conda cargo bazel cmake make_tool webpack vite rollup_js esbuild
    composer nuget homebrew=brew apt=apt_get yum dnf pacman bundler uv pipenv virtualenv=venv
ci: jenkins circleci travis=travis_ci gitlab_ci github_actions teamcity bamboo azure_devops buildkite drone_ci
code host: github gitlab bitbucket gitea codeberg sourceforge
version control: git svn=subversion mercurial perforce
queue: kafka rabbitmq activemq nats pulsar celery zeromq pubsub mqtt sidekiq
web server: nginx apache=httpd caddy haproxy traefik envoy iis tomcat jetty gunicorn uvicorn varnish istio linkerd
    kong
monitoring: prometheus grafana datadog splunk new_relic nagios zabbix sentry kibana logstash jaeger zipkin loki
    fluentd opentelemetry pagerduty
issue tracker: jira trello asana linear_app notion confluence clickup basecamp monday_com airtable
chat: slack discord microsoft_teams=ms_teams telegram whatsapp zoom skype signal_app messenger webex wechat viber
editor: vscode=vs_code=visual_studio_code vim neovim emacs intellij pycharm eclipse xcode sublime_text notepad
    visual_studio webstorm jupyter cursor_editor
browser: chrome firefox safari edge_browser opera_browser internet_explorer brave_browser chromium
search engine: google bing duckduckgo yahoo baidu
site: facebook instagram twitter tiktok youtube linkedin reddit quora pinterest snapchat tumblr netflix spotify
    twitch wikipedia medium_com stackoverflow=stack_overflow
shop: amazon ebay etsy walmart alibaba flipkart shopify target_store costco ikea
payment: paypal stripe visa mastercard amex=american_express apple_pay google_pay venmo klarna adyen wise_transfer
    cash cheque sepa swift_transfer
company: apple microsoft samsung sony nokia huawei xiaomi intel amd nvidia ibm oracle_corp tesla toyota honda ford
    bmw audi mercedes volkswagen uber lyft airbnb infosys tcs wipro accenture
device: iphone ipad android_phone laptop tablet desktop smartphone smartwatch macbook=mac_laptop=apple_laptop chromebook
    xbox playstation nintendo printer scanner router
model: gpt claude gemini llama mistral bert t5 resnet chatgpt copilot deepseek qwen whisper
machine learning: pytorch=torch tensorflow=tf keras jax sklearn=scikit_learn xgboost lightgbm catboost onnx
    huggingface=hugging_face numpy pandas polars scipy matplotlib seaborn plotly spark=pyspark dask ray_framework
    airflow dagster prefect dbt mlflow
test tool: pytest unittest jest mocha junit testng cypress selenium playwright puppeteer jasmine rspec phpunit
    vitest
protocol: http https ftp sftp ftps ssh smtp imap pop3 tcp udp grpc websocket=websockets graphql soap_api
    rest=restful dns dhcp ldap snmp telnet quic icmp vpn nfs smb webrtc ipsec wireguard openvpn
http method: get_request post_request put_request patch_request delete_request
encryption: tls=ssl aes des_cipher blowfish chacha20 ecdsa ed25519
hash: md5 sha bcrypt argon2 scrypt crc32
authentication: oauth=oauth2 saml jwt kerberos basic_auth api_key oidc mfa=two_factor=2fa=two_factor_authentication
    sso=single_sign_on password passphrase
file format: json yaml=yml xml csv tsv toml ini parquet avro protobuf=protocol_buffers pdf docx=word_document
    xlsx=excel pptx=powerpoint markdown latex txt html_file msgpack orc ndjson=jsonl epub rtf odt
image format: png jpeg=jpg gif svg webp tiff bmp heic avif ico
media format: mp3 mp4 wav flac ogg avi mkv mov webm aac m4a
archive format: tar gzip=gz bzip2 lzma rar zstd lz4 7z
office program: excel_sheet google_sheets google_docs libreoffice outlook gmail thunderbird onenote onedrive dropbox
    google_drive icloud sharepoint
graphics program: photoshop gimp illustrator inkscape figma sketch_app blender autocad
character set: utf ascii latin
number base: binary hexadecimal=hex octal decimal
data structure: array linked_list stack queue tree graph heap hashmap=hash_map=hash_table tuple dictionary=dict
    set_type list_type vector matrix
data type: integer=int float double_type string=str boolean=bool char date_type timestamp uuid=guid
sql clause: group_by order_by
sql join: inner_join left_join right_join full_join cross_join
sql statement: select insert update truncate
loop: for_loop while_loop foreach
log level: debug info warn=warning error fatal trace_level
http status: ok_status not_found unauthorized_status forbidden_status
position: left right top bottom center=middle
direction of compass: north south east west
step: first 2nd third fourth fifth sixth last
dimension: width height depth length
measure: size speed weight height age temperature area volume distance price duration
line part: row column cell
axis: x_axis y_axis z_axis
side of a coin: heads tails
colour: red blue green yellow orange purple pink black white gray brown violet cyan magenta turquoise beige
resource: cpu=processor gpu memory=ram disk=storage network bandwidth
hardware: keyboard mouse monitor webcam microphone speaker headphones camera battery charger motherboard ssd hdd
kubernetes object: pod deployment service_object statefulset daemonset configmap ingress namespace_object cronjob
    node_pool replicaset persistent_volume
git object: branch tag commit stash submodule
git action: commit push pull fetch rebase merge cherry_pick stash checkout clone
ui element: button checkbox dropdown slider tooltip modal=dialog sidebar navbar menu textbox radio_button banner
    icon
role: admin=administrator editor viewer owner guest moderator maintainer customer employee manager_role
weekday: monday=mon tuesday=tue=tues wednesday=wed thursday=thu=thur=thurs friday=fri saturday sunday
month: january february april june july august september=sept october november december
season: spring_season summer autumn winter
part of day: morning noon=midday afternoon evening night midnight
day: today tomorrow yesterday tonight
frequency: hourly=every_hour=each_hour=once_an_hour=per_hour daily=every_day=each_day=once_a_day=per_day=everyday
    weekly=every_week=each_week=once_a_week=per_week monthly=every_month=each_month=once_a_month=per_month
    quarterly=every_quarter yearly=annually=annual=every_year=each_year=per_year=once_a_year
    nightly=every_night=each_night biweekly=every_other_week=every_two_week=fortnightly every_minute=per_minute
    every_second=per_second
week: last_week=past_week=previous_week this_week=current_week next_week=coming_week=following_week
month meant: last_month=past_month=previous_month this_month=current_month next_month=coming_month
year meant: last_year=past_year=previous_year this_year=current_year next_year=coming_year
night: last_night this_night=tonight tomorrow_night
time span: second minute=min hour=hr day week month quarter year decade century millisecond=ms microsecond
    nanosecond
byte unit: kilobyte=kb megabyte=mb gigabyte=gb terabyte=tb petabyte=pb byte bit
length unit: kilometer=km meter centimeter=cm millimeter=mm mile inch foot=feet yard
weight unit: kilogram=kg gram pound=lb ounce=oz tonne
temperature unit: celsius fahrenheit kelvin
currency: usd=dollar=us_dollar eur=euro gbp=british_pound jpy=yen inr=rupee cny=yuan chf=franc cad aud bitcoin=btc
    ethereum=eth dogecoin litecoin
timezone: utc=gmt est=edt=eastern_time pst=pdt=pacific_time cet=cest cst=cdt mst=mdt jst bst aest
country: usa=us=united_states=america uk=united_kingdom=britain=england canada mexico brazil argentina germany
    france spain italy portugal netherlands=holland belgium switzerland austria poland sweden norway denmark finland
    ireland greece turkey russia ukraine china japan korea=south_korea north_korea india pakistan bangladesh nepal
    indonesia malaysia singapore thailand vietnam philippines australia new_zealand israel iran iraq egypt nigeria
    kenya south_africa saudi_arabia uae=dubai qatar colombia chile peru cuba hungary romania czechia czech_republic
    scotland wales afghanistan sri_lanka
continent: europe asia africa south_america north_america antarctica
city: london paris berlin munich hamburg frankfurt vienna zurich geneva rome milan madrid barcelona lisbon amsterdam
    brussels copenhagen stockholm oslo helsinki dublin warsaw prague budapest athens istanbul moscow kyiv
    new_york=nyc los_angeles san_francisco chicago boston seattle austin houston dallas denver miami atlanta
    washington toronto vancouver montreal tokyo osaka seoul beijing shanghai hong_kong taipei delhi=new_delhi mumbai
    bangalore=bengaluru chennai kolkata hyderabad pune karachi lahore sydney melbourne auckland tel_aviv cairo lagos
    nairobi cape_town johannesburg mexico_city sao_paulo buenos_aires las_vegas orlando phoenix_arizona philadelphia
    portland detroit
state: california texas florida ohio georgia_state michigan virginia colorado arizona utah nevada oregon illinois
nationality: american british german french spanish italian portuguese dutch swiss austrian polish swedish norwegian
    danish finnish irish greek turkish russian ukrainian chinese japanese korean indian pakistani indonesian thai
    vietnamese australian canadian mexican brazilian arabic arab hebrew hindi urdu english latin persian tamil
    bengali mandarin cantonese african european asian
religion: christian=christianity muslim=islam hindu=hinduism buddhist=buddhism jewish=judaism atheist=atheism
    catholic protestant sikh
instrument: guitar piano violin drum flute saxophone ukulele cello trumpet
sport: football=soccer basketball baseball tennis cricket hockey golf rugby volleyball badminton swimming boxing
    chess cycling
science: physics chemistry biology mathematics=math=maths geography history psychology philosophy economics
    sociology astronomy
profession: doctor lawyer engineer teacher nurse accountant architect pilot dentist
degree: bachelor=bachelors master phd=doctorate mba diploma
fruit: apple banana orange pear peach plum cherry grape mango pineapple melon strawberry raspberry blueberry lemon
work tracked: bug feature epic chore
way of transport: air sea rail
address of a customer: billing shipping=delivery
folder: src test docs lib build dist
loss: lost stolen damaged expired
animal: dog cat horse cow pig sheep goat chicken duck rabbit hamster parrot snake lion tiger wolf fox elephant
drink: coffee tea water milk juice beer wine whiskey vodka
food: rice pasta bread pizza burger steak fish salad soup egg cheese potato tomato
meal: breakfast lunch dinner
planet: mercury_planet venus earth mars jupiter saturn uranus neptune pluto moon sun
body part: head neck shoulder arm hand leg knee back_pain stomach eye ear nose tooth=teeth hair skin
relative: mother=mom=mum father=dad brother sister son daughter husband wife uncle aunt grandmother=grandma
    grandfather=grandpa boyfriend girlfriend cousin
vehicle: car=automobile bike=bicycle motorcycle=motorbike bus train plane=airplane=flight ship taxi=cab truck subway
account: checking_account savings_account current_account
contact: email phone=telephone fax sms=text_message letter
personal data: password username=user_name email_address=email phone_number pin address name surname birthday
card: credit_card debit_card gift_card sim_card virtual_card prepaid_card graphics_card
travel paper: passport visa_stamp ticket boarding_pass
document kind: invoice receipt contract proposal report
tense: past_tense future_tense present_tense
statistic: mean=average median mode_value variance standard_deviation percentile
trigonometry: sine=sin cosine=cos tangent
boolean: true=truthy false=falsy null_value
sort: quicksort mergesort bubble_sort heapsort insertion_sort
search: binary_search linear_search depth_first=dfs breadth_first=bfs
testing: unit_test integration_test end_to_end_test=e2e_test smoke_test load_test regression_test stress_test
    performance_test
authentication step: authentication=authn authorization=authz
load balancing: round_robin least_connections ip_hash
isolation: read_committed repeatable_read serializable read_uncommitted
age of a person: baby=infant=newborn toddler child=kid=minor teenager=teen=adolescent adult=grown_up
    senior_citizen=pensioner=elderly
role of a person: patient visitor=guest resident student teacher employee employer landlord tenant volunteer
young animal: puppy kitten calf foal lamb duckling chick
nutrient: protein carbohydrate=carb fiber=fibre salt=sodium calcium potassium magnesium zinc iodine omega_3 caffeine
    cholesterol gluten lactose
illness: flu=influenza covid=covid_19 asthma diabetes cancer arthritis migraine eczema psoriasis malaria measles
    tuberculosis pneumonia bronchitis anemia hepatitis dementia=alzheimer epilepsy stroke depression anxiety
    insomnia autism adhd ocd scoliosis gout shingles chickenpox tonsillitis sinusitis
organ: liver kidney lung brain bladder pancreas spleen thyroid colon prostate
medicine: ibuprofen aspirin paracetamol=acetaminophen=tylenol antibiotic antihistamine antidepressant insulin
    penicillin amoxicillin metformin
exam: gre gmat toefl ielts sat_exam lsat mcat driving_test bar_exam
school: kindergarten=nursery elementary_school=primary_school middle_school high_school=secondary_school
    university=college
room: kitchen bathroom bedroom living_room garage attic basement=cellar balcony
furniture: chair sofa=couch wardrobe bookshelf mattress
clothing: shirt trousers=pants jacket coat skirt dress shoe=sneaker boot hat sock glove scarf suit
fabric: cotton wool silk polyester linen leather denim velvet
metal: steel aluminum=aluminium copper gold silver brass titanium platinum
meat: beef pork chicken veal bacon ham sausage
vegetable: potato tomato carrot onion garlic cabbage spinach broccoli cucumber lettuce pumpkin cauliflower
way of cooking: boiled fried baked grilled steamed roasted poached smoked raw
reading matter: book magazine newspaper website=web_site podcast comic textbook course
show: movie=film tv_show=tv_series=television_series song album concert opera musical
office document: slideshow=presentation spreadsheet
dwelling: apartment=flat villa cottage bungalow dormitory
insurance: health_insurance car_insurance=auto_insurance=vehicle_insurance home_insurance=homeowners_insurance
    life_insurance travel_insurance pet_insurance renters_insurance
loan: personal_loan business_loan=commercial_loan student_loan car_loan=auto_loan home_loan=mortgage payday_loan
tax: income_tax sales_tax=vat property_tax corporate_tax=corporation_tax inheritance_tax
visa kind: tourist_visa student_visa work_visa business_visa transit_visa
leave: maternity_leave paternity_leave sick_leave annual_leave=vacation_leave unpaid_leave
legal event: wedding=marriage funeral divorce adoption
holiday: christmas=xmas easter thanksgiving halloween new_year=new_years diwali ramadan hanukkah
shape: circle square triangle rectangle hexagon ellipse sphere cube cylinder cone pyramid
genre: horror comedy thriller romance drama documentary western science_fiction=sci_fi fantasy musical
fact of a country: population capital currency flag area climate religion
fact of a word: meaning origin spelling pronunciation synonym etymology
place that cools: fridge=refrigerator freezer
way of going: cyclist pedestrian motorist
race: marathon triathlon half_marathon sprint
job title: analyst scientist consultant technician designer tester
ticket holder: passenger driver
channel: by_email by_phone=over_the_phone by_mail=by_post=by_letter in_person
luggage: carry_on_bag=hand_luggage=cabin_bag=carry_on_luggage=carry_on_baggage
    checked_bag=checked_luggage=checked_baggage
ticket: single_ticket=one_way_ticket return_ticket=round_trip_ticket season_ticket day_ticket
"""

_KINDS_OF = {
    group: kind
    for kind, groups in {
        "date": "weekday,month,season,part of day,day,frequency,week,month meant,year meant,night,timezone",
        "unit": "time span,byte unit,length unit,weight unit,temperature unit,currency",
        "order": "step",
    }.items()
    for group in groups.split(",")
}
"""Kinds of contrast of the groups that do not hold names."""

_SAME = """
use utilize employ leverage apply utilization usage
get obtain retrieve fetch acquire receive gain
get become
find locate discover look_for search_for search seek identify determine figure_out find_out detect lookup look_up
show display print list view see present render output
show demonstrate illustrate
make create set_up build produce generate develop construct write form craft design devise fabricate compose
    establish
make render
do perform execute carry_out conduct accomplish
run execute launch invoke
launch open
start initiate begin commence trigger launch
change modify alter edit update adjust amend revise
set change
change switch swap convert turn transform transition
change replace
set configure set_up setup specify define assign adjust
set_up install setup
put place insert position
add include insert append attach incorporate put
add introduce
remove delete erase eliminate strip get_rid drop clear purge wipe uninstall take_out take_off clean clean_up
fix repair resolve solve correct troubleshoot address debug patch mend
error failure problem issue bug fault exception trouble
fail crash break malfunction error
check verify validate confirm test examine inspect ensure make_sure review look
check see
need require want
needed necessary required mandatory
allow let permit enable
allow support
help assist aid assistance
help allow
tell inform say notify
tell explain describe
explain clarify describe elaborate
buy purchase order
price cost fee rate charge
pay settle
send transmit deliver transfer dispatch mail submit
move transfer migrate relocate shift transport
move port
copy duplicate replicate clone
copy transfer
save store keep persist retain preserve record
keep maintain hold stay remain
end finish complete conclude terminate
end stop
stop quit cease halt abort
above over exceed
stop prevent avoid block
prevent avoid
kill terminate stop
pull fetch download
upload push send
join combine merge unite concatenate
split divide separate partition break_up
connect link attach hook_up
connection link
choose select pick opt
give provide supply offer deliver
give return
provide contain
return yield give output produce
return send_back
contain include hold comprise consist have
load import read
import bring
read parse
write author compose
write log
read open
count number amount quantity total
calculate compute work_out determine evaluate count
measure calculate gauge
compare contrast
test try evaluate
try attempt
learn study understand
understand comprehend grasp
teach educate
explain teach
think believe consider feel
like enjoy
fast quick rapid speedy
quickly fast rapidly
speed_up accelerate optimize improve faster
improve enhance boost better increase optimize upgrade refine
increase raise grow boost raise up extend expand
increase enlarge
reduce decrease lower cut shrink minimize lessen
limit restrict cap constrain
limit maximum
big large huge great
small little tiny
good great excellent nice fine best ideal
best top finest
best good
easy simple straightforward
easily simply
hard difficult tough
important crucial essential vital key significant
main primary principal chief major
new latest recent fresh
new create
old former previous
current existing present
current latest
different distinct various separate
same identical equal
similar alike comparable
whole entire full complete
each every per
many several multiple various numerous
several multiple
part piece section portion component
split division
type kind sort category class
way method approach means manner technique procedure process
step stage phase
reason cause
purpose goal aim objective
result outcome output
effect impact influence
difference distinction
benefit advantage
example sample instance
instance server machine host vm node virtual_machine
server host
service app application
app application program software
application request
program code script
script file
library package module
package dependency
function method routine
function functionality feature
parameter argument option setting
setting configuration config preference
configuration config settings conf
option choice
value amount
variable var
attribute property field characteristic
feature characteristic
user customer client
user account
person people individual
people human folks
company firm business organization corporation enterprise
job work task position
job task
work function operate
job role
work job
project repository
repository repo
folder directory
file document
text string
line row
record row entry
entry item
item element object
table relation
schema structure
query request
query search
request ask
response reply answer
reply respond answer
message notification alert
alert alarm warning
alert notify
log record
log history
login log_in sign_in logon log_on sign_on
logout log_out sign_out sign_off log_off
signup sign_up register enroll subscribe
account profile
password passcode credentials passphrase
secret credential key
token key
picture image photo photograph
video clip
sound audio
movie film cinema
phone mobile cellphone smartphone
website site webpage page
url link address
location place position
place spot
area region zone
country nation
city town
home house
road street
trip journey travel
travel go visit
hotel accommodation
car vehicle
doctor physician
illness disease sickness
medicine drug medication
money cash funds
salary pay wage
loan credit
bank institution
card
bill invoice
refund reimburse money_back
transaction payment
transaction transfer purchase
payment charge
top_up topup add_money
cancel abort call_off
declined rejected denied refused
pending waiting
arrive come deliver
delivery shipping arrival
wait expect
missing lost absent
lose misplace
steal compromise
broken damaged faulty defective
wrong incorrect bad
right correct proper
correctly properly
accurate correct exact
exact precise
quick fast
slow sluggish
cheap inexpensive affordable low_cost
free complimentary
safe secure
secure protect
guard protect
risk danger
restart reboot relaunch
restart reload
refresh reload
rename retitle
rollback roll_back revert undo
undo revert reverse
deploy release roll_out rollout ship publish launch
deploy install
schedule plan
schedule cron
automate script
monitor watch track observe
track follow
trace track
back_up backup
restore recover
recover regain retrieve
reset restore
expire lapse
expiration expiry
extend prolong lengthen
renew extend
rotate renew
rotate cycle
scale resize
resize rescale
truncate cut trim
trim cut
sort order arrange
filter narrow
filter select
group cluster
organize arrange
aggregate summarize
summary overview
summarize outline recap
translate convert
convert transform translate cast change turn
turn become
parse process
process handle
handle deal manage treat
manage administer handle control
control manage
access reach
access permission
permission privilege right access
grant give
own have possess
have possess
happen occur
happen go_on
appear seem look
appear show_up
know understand
know aware
tell know
remember recall memorize
forget lose
meet encounter
hit encounter
encounter face
talk speak chat discuss
discuss talk
call invoke
call phone ring dial
contact reach call get_in_touch
ask query inquire request
answer solution
solution fix
guide tutorial manual walkthrough instructions
documentation docs
instruction direction guideline
begin start
first initial
final last
next following subsequent
next upcoming
after once following
before prior ahead
during while
soon shortly
now currently presently
often frequently
usually typically normally
also too additionally
extra additional more further
extra spare
enough sufficient
almost nearly
approximately about around roughly
exactly precisely
automatically auto
manually by_hand
together jointly
separately independently individually
directly straight
inside within
outside beyond
via through using
without lacking
because since
but however
if whether
like similar
such like
environment env
database db
kubernetes k8s
cluster k8s_cluster
certificate cert
authentication auth
authorization auth
administrator admin
statistics stats
information info details data
details specifics
data dataset
dataset collection
specification spec
requirement need
dev developer
developer programmer engineer coder
programmer
programming coding
code source source_code
professional pro
internet web network
television tv
university college
school college
exam test
student pupil
grade mark score
book novel
author writer
kid child
child
beautiful pretty
happy glad
angry mad
tired exhausted
scared afraid
famous popular well_known
smart intelligent clever
rich wealthy
strange weird odd
interesting fascinating
funny humorous
ratio proportion
percentage percent
maximum max
minimum min
average mean
temperature temp
directory dir
temporary temp
memory ram
processor cpu
timeout time_limit
retry attempt
retry try_again
bucket container
container image
pod container
endpoint route
endpoint api
frontend ui front_end
backend back_end
interface ui
screen display
screen page
button
click press hit tap
type enter input
enter input
enter go_into
scan read
backup copy
snapshot backup
replica copy
queue list
list array
map dictionary
hash digest
interval period
period duration
duration length
length size
size capacity
quota limit
threshold limit
version release
release version
branch
commit
pull_request pr merge_request
ticket issue
bug issue
stuff things
thing object
metadata information
platform system
system
tool utility
utility program
library framework
model
long duration length
tall height high
wait delay
write save store
schedule run
learnable trainable
train teach
dictionary dict
integer int
boolean bool
default standard
standard regular normal
custom own
particular specific certain
specific given
given specified provided supplied
certain some
optional voluntary
ability capacity possibility capability
guidance advice guideline instruction
collection compilation
useful beneficial helpful handy
advanced sophisticated
custom personalized customized bespoke
designed intended
share distribute
eager keen willing
vision visual
text textual
builder constructor
specify indicate
determine decide
furnish provide supply
architecture structure
support accommodate
community collective
enable facilitate
augment enhance
follow adhere
nevertheless however nonetheless
evaluate assess
explore investigate examine
progressive gradual
designated specified
wake_up get_up
effect impact consequence implication
hate detest
scared frightened
gift present
job occupation
sick unwell
angry furious
right accurate
ban forbid prohibit
gather collect
famous renowned
worth value
earn make_money
risk hazard
mistake error
drawback disadvantage downside
lawyer attorney
exam examination
rule regulation
necessary essential
sufficient adequate
typical common
mandatory compulsory obligatory
optimal best
valid legitimate
invalid incorrect
unique distinct
common usual
usa united_states america american
uk united_kingdom britain british
germany german
france french
spain spanish
italy italian
portugal portuguese
netherlands holland dutch
switzerland swiss
austria austrian
poland polish
sweden swedish
norway norwegian
denmark danish
finland finnish
ireland irish
greece greek
turkey turkish
russia russian
ukraine ukrainian
china chinese
japan japanese
korea south_korea korean
india indian
pakistan pakistani
thailand thai
vietnam vietnamese
australia australian
canada canadian
mexico mexican
brazil brazilian
europe european
africa african
asia asian
unexpected surprising
available accessible
possible feasible able
able capable
ready prepared
enabled active on
disabled inactive off
"""

_SLIGHT = """
number as_soon_as as_long_as so_far such_as of_course for_example at_all by_default right_now right_away in_order_to
as_well_as after_all due_to thousands hundreds either neither nor absence mention look expect all every each both
entire whole only except excluding just a an the this that these those there here it its itself they them their he
she his her him we us our i me my mine you your yours one ones and or but so then than as if of at by for with to in
on into onto upon from about is are was be am do does did have has had will would shall should can could may might
must ought let lets please kindly hi hello hey thanks thank dear ok okay yes no not well also too very really quite
rather simply actually basically how what which who whom whose when where why whether way ways best good want need
like wish help tell explain show know possible able easy easily any some other another such same own more most much
many lot lots bit kind sort thing things stuff someone somebody anyone anybody something anything everyone everybody
people person get got go going come make made take use used using give keep put work works now currently again still
already yet even ever always once back up out off down over away around through while because since due after before
between among during without within per via versus vs etc eg ie am're ve ll re d s m t im ive id ill youre theyre
thats whats hows new current existing different particular specific certain given proper properly correct correctly
right exactly question issue problem idea step steps method process approach order case time example i'm sure try
trying wondering wonder looking seem seems happen happens
"""


@cache
def slight() -> frozenset[str]:
    """Returns stems that say little: their absence or presence makes no other task."""
    return frozenset(phrase_key(word) for word in _SLIGHT.split())


def slight_words() -> list[str]:
    """Returns the words of `slight` as they are written."""
    return _SLIGHT.split()


@cache
def _groups() -> dict[str, list[tuple[str, str]]]:
    table: dict[str, list[tuple[str, str]]] = {}
    for row in rows(_GROUPS):
        group, members = row.split(":")
        for member in members.split():
            names = [phrase_key(name) for name in member.split("=")]
            for name in names:
                table.setdefault(name, []).append((group, names[0]))
    return table


def memberships(name: str) -> list[tuple[str, str]]:
    """Returns the groups that a stem belongs to, each with the member that it names."""
    return _groups().get(name, [])


def rivals(one: str, other: str) -> str | None:
    """Returns the kind of contrast between two members of a group, or None.

    Names of one member are no rivals, nor is a word that shares any member with the other.
    """
    found = None
    table = _groups()
    others = table.get(other)
    for group, member in table.get(one, ()) if others else ():
        for other_group, other_member in others or ():
            if group == other_group:
                if member == other_member:
                    return None
                found = _KINDS_OF.get(group, "name")
    return found


def is_ordinal(word: str) -> bool:
    """Tells whether a stem says the place in a row: first, 15th."""
    return word in _ORDINALS or (word.endswith("th") and word[:-2].isdigit())


_ORDINALS = words("first 2nd third fourth fifth sixth")


def rivals_surely(one: str, other: str) -> bool:
    """Tells whether two rivals are names or dates, which no row of synonyms can make the same."""
    return rivals(one, other) == "date" or (is_product(one) and is_product(other))


@cache
def _same() -> dict[str, frozenset[object]]:
    """Returns for each stem what it can mean: rows of `_SAME`, members of groups."""
    table: dict[str, set[object]] = {}
    for number, row in enumerate(rows(_SAME)):
        for word in row.split():
            table.setdefault(phrase_key(word), set()).add(number)
    for word, places in _groups().items():
        table.setdefault(word, set()).update(places)
    return {word: frozenset(meanings) for word, meanings in table.items()}


def same(one: str, other: str) -> bool:
    """Tells whether two stems mean the same in most tasks."""
    table = _same()
    meanings = table.get(one)
    return meanings is not None and not meanings.isdisjoint(table.get(other, ()))


def known(word: str) -> bool:
    """Tells whether a stem is in a table, so that it is no mistyped form of another."""
    return word in _same()


def phrases() -> list[str]:
    """Returns the phrases of the tables, their words with an underscore between."""
    return [word for word in (_GROUPS.replace("=", " ") + _SAME).split() if "_" in word]


_PRODUCT_GROUPS = words(
    "database cloud language runtime model browser device chat editor company protocol encryption"
) | {
    "aws service", "operating system", "web framework", "container tool", "deployment tool", "build tool", "ci",
    "code host", "version control", "queue", "web server", "monitoring", "machine learning", "test tool", "site",
    "payment", "authentication", "file format", "office program", "graphics program", "issue tracker", "shop",
}  # fmt: skip


@cache
def product_names() -> frozenset[str]:
    """Returns the stems of products: a number behind one is its version."""
    return frozenset(name for name, places in _groups().items() if any(group in _PRODUCT_GROUPS for group, _ in places))


def is_place(name: str) -> bool:
    """Tells whether a stem is the name of a country or a city."""
    return any(group in ("country", "city") for group, _ in memberships(name))


def is_product(name: str) -> bool:
    """Tells whether a stem is the name of a product."""
    return name in product_names()
