"""The names of languages and countries by their codes, as {{lang-xx}} and {{flag}} show them."""


def _named(table: str) -> dict[str, str]:
    return {code: name for entry in table.split(";") for code, _, name in [" ".join(entry.split()).partition(" ")]}


# ISO 639, and the codes of Wikipedia's own templates
LANGUAGES = _named(
    """
    ab Abkhaz; af Afrikaans; akk Akkadian; am Amharic; an Aragonese; ang Old English; ar Arabic; arc Aramaic; arz
    Egyptian Arabic; as Assamese; ast Asturian; ay Aymara; az Azerbaijani; ba Bashkir; be Belarusian; ber Berber; bg
    Bulgarian; bn Bengali; bo Tibetan; br Breton; bs Bosnian; ca Catalan; ce Chechen; ceb Cebuano; ckb Central Kurdish;
    co Corsican; cop Coptic; crh Crimean Tatar; cs Czech; cu Old Church Slavonic; cv Chuvash; cy Welsh; da Danish; de
    German; dv Dhivehi; el Greek; en English; enm Middle English; eo Esperanto; es Spanish; et Estonian; eu Basque; fa
    Persian; fi Finnish; fil Filipino; fo Faroese; fr French; frm Middle French; fro Old French; fy West Frisian; ga
    Irish; gd Scottish Gaelic; gl Galician; gmh Middle High German; gn Guarani; goh Old High German; got Gothic; grc
    Ancient Greek; grc-gre Greek; gsw Alemannic German; gu Gujarati; gv Manx; ha Hausa; haw Hawaiian; hbo Biblical
    Hebrew; he Hebrew; hi Hindi; hr Croatian; hsb Upper Sorbian; ht Haitian Creole; hu Hungarian; hy Armenian; ia
    Interlingua; id Indonesian; ig Igbo; io Ido; is Icelandic; it Italian; iu Inuktitut; ja Japanese; jv Javanese; ka
    Georgian; kk Kazakh; kl Greenlandic; km Khmer; kn Kannada; ko Korean; ku Kurdish; kw Cornish; ky Kyrgyz; la Latin;
    lad Judaeo-Spanish; lb Luxembourgish; lo Lao; lt Lithuanian; ltg Latgalian; lv Latvian; mg Malagasy; mi Māori; mk
    Macedonian; ml Malayalam; mn Mongolian; mr Marathi; ms Malay; mt Maltese; my Burmese; nah Nahuatl; nap Neapolitan;
    nb Norwegian Bokmål; nds Low German; ne Nepali; nl Dutch; nn Norwegian Nynorsk; no Norwegian; non Old Norse; nv
    Navajo; oc Occitan; or Odia; os Ossetian; ota Ottoman Turkish; pa Punjabi; pal Middle Persian; peo Old Persian; pi
    Pali; pl Polish; pms Piedmontese; ps Pashto; pt Portuguese; qu Quechua; rm Romansh; ro Romanian; ru Russian; rus
    Russian; sa Sanskrit; sah Yakut; sc Sardinian; scn Sicilian; sco Scots; sd Sindhi; se Northern Sami; sga Old Irish;
    sh Serbo-Croatian; si Sinhala; sk Slovak; sl Slovene; sm Samoan; so Somali; sq Albanian; sr Serbian; su Sundanese;
    sv Swedish; sw Swahili; syr Syriac; szl Silesian; ta Tamil; te Telugu; tg Tajik; th Thai; ti Tigrinya; tk Turkmen;
    tl Tagalog; to Tongan; tr Turkish; tt Tatar; ug Uyghur; uk Ukrainian; ur Urdu; uz Uzbek; vec Venetian; vi
    Vietnamese; wa Walloon; wo Wolof; xh Xhosa; yi Yiddish; yo Yoruba; zh Chinese; zu Zulu
    """
)

# the codes of the International Olympic Committee, FIFA and ISO 3166 that differ too
COUNTRIES = _named(
    """
    AFG Afghanistan; ALB Albania; ALG Algeria; DZA Algeria; AND Andorra; ANG Angola; AGO Angola; ARG Argentina; ARM
    Armenia; AUS Australia; AUT Austria; AZE Azerbaijan; BAH Bahamas; BAN Bangladesh; BGD Bangladesh; BLR Belarus; BEL
    Belgium; BOL Bolivia; BIH Bosnia and Herzegovina; BRA Brazil; BUL Bulgaria; BGR Bulgaria; CAM Cambodia; CMR
    Cameroon; CAN Canada; CHI Chile; CHL Chile; CHN China; PRC China; COL Colombia; CRC Costa Rica; CRO Croatia; HRV
    Croatia; CUB Cuba; CYP Cyprus; CZE Czech Republic; TCH Czechoslovakia; DEN Denmark; DNK Denmark; DOM Dominican
    Republic; ECU Ecuador; EGY Egypt; ENG England; EST Estonia; ETH Ethiopia; FIN Finland; FRA France; GAB Gabon; GEO
    Georgia; GER Germany; DEU Germany; GDR East Germany; FRG West Germany; GHA Ghana; GBR United Kingdom; UK United
    Kingdom; GRE Greece; GRC Greece; GUA Guatemala; HAI Haiti; HON Honduras; HKG Hong Kong; HUN Hungary; ISL Iceland;
    IND India; INA Indonesia; IDN Indonesia; IRI Iran; IRN Iran; IRQ Iraq; IRL Ireland; ISR Israel; ITA Italy; CIV Ivory
    Coast; JAM Jamaica; JPN Japan; JOR Jordan; KAZ Kazakhstan; KEN Kenya; KOR South Korea; PRK North Korea; KOS Kosovo;
    KUW Kuwait; KGZ Kyrgyzstan; LAT Latvia; LVA Latvia; LIB Lebanon; LBN Lebanon; LIE Liechtenstein; LTU Lithuania; LUX
    Luxembourg; MAS Malaysia; MYS Malaysia; MLI Mali; MLT Malta; MEX Mexico; MDA Moldova; MON Monaco; MGL Mongolia; MNE
    Montenegro; MAR Morocco; MOZ Mozambique; NAM Namibia; NEP Nepal; NED Netherlands; NLD Netherlands; NZL New Zealand;
    NGR Nigeria; NGA Nigeria; MKD North Macedonia; NIR Northern Ireland; NOR Norway; PAK Pakistan; PAN Panama; PAR
    Paraguay; PRY Paraguay; PER Peru; PHI Philippines; PHL Philippines; POL Poland; POR Portugal; PRT Portugal; PUR
    Puerto Rico; PRI Puerto Rico; QAT Qatar; ROU Romania; ROM Romania; RUS Russia; KSA Saudi Arabia; SAU Saudi Arabia;
    SCO Scotland; SEN Senegal; SRB Serbia; SCG Serbia and Montenegro; SIN Singapore; SGP Singapore; SVK Slovakia; SLO
    Slovenia; SVN Slovenia; RSA South Africa; ZAF South Africa; URS Soviet Union; USSR Soviet Union; ESP Spain; SRI Sri
    Lanka; LKA Sri Lanka; SUD Sudan; SWE Sweden; SUI Switzerland; CHE Switzerland; SYR Syria; TPE Chinese Taipei; TWN
    Taiwan; TAN Tanzania; THA Thailand; TUN Tunisia; TUR Turkey; UGA Uganda; UKR Ukraine; UAE United Arab Emirates; ARE
    United Arab Emirates; USA United States; US United States; URU Uruguay; URY Uruguay; UZB Uzbekistan; VEN Venezuela;
    VIE Vietnam; VNM Vietnam; WAL Wales; YEM Yemen; YUG Yugoslavia; ZAM Zambia; ZIM Zimbabwe; ZWE Zimbabwe
    """
)
